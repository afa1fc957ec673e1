// NCCL's own reading of a topology and a graph file, and its own search, without a GPU.
//
// Compiled with NCCL's src/graph/{xml,topo,paths,search}.cc, unchanged, by nccl_graph_judge.py. What these files
// ask of the rest of NCCL stands here: the environment, logs, CPU sets; NVML says that all GPUs may read each
// other. usage: judge TOPOLOGY.xml BETWEEN_HOSTS(0|1); NCCL_GRAPH_FILE and NCCL_GRAPH_DUMP_FILE as in NCCL.
#include <cstdarg>
#include <string>

#include "comm.h"
#include "core.h"
#include "graph.h"
#include "nvmlwrap.h"
#include "topo.h"
#include "xml.h"

int ncclDebugLevel = 3;
uint64_t ncclDebugMask = ~0ull;
thread_local int ncclDebugNoWarn = 0;
char ncclLastError[1024];
ncclNvmlDevicePairInfo ncclNvmlDevicePairs[ncclNvmlMaxDevices][ncclNvmlMaxDevices];

void ncclDebugLogInternal(ncclDebugLogLevel level, unsigned long, const char*, const char*, int,
                          const char* format, ...) {
  if (level == NCCL_LOG_TRACE) return;
  va_list given;
  va_start(given, format);
  printf(level == NCCL_LOG_WARN ? "WARN " : "INFO ");
  vprintf(format, given);
  printf("\n");
  va_end(given);
}

const char* ncclGetEnv(const char* name) { return getenv(name); }

int64_t ncclLoadParam(char const* name, int64_t otherwise, int64_t, int64_t* kept, int8_t*) {
  const char* said = getenv(name);
  return *kept = said ? strtoll(said, NULL, 0) : otherwise;
}

ncclResult_t busIdToInt64(const char* text, int64_t* id) {
  std::string digits;
  for (; *text; text++)
    if (*text != ':' && *text != '.') digits += *text;
  *id = strtol(digits.c_str(), NULL, 16);
  return ncclSuccess;
}

uint64_t getHostHash() { return 0; }
ncclResult_t ncclNvmlEnsureInitialized() { return ncclSuccess; }
int ncclOsCpuCount(const ncclAffinity& set) { return CPU_COUNT(&set); }
bool ncclOsCpuIsSet(const ncclAffinity& set, int cpu) { return CPU_ISSET(cpu, &set); }
void ncclOsCpuSet(ncclAffinity& set, int cpu) { CPU_SET(cpu, &set); }
void ncclOsCpuZero(ncclAffinity& set) { CPU_ZERO(&set); }

#define MUST(call) \
  do { \
    ncclResult_t status = (call); \
    if (status != ncclSuccess) { \
      printf("FAILED %s: %d\n", #call, (int)status); \
      exit(1); \
    } \
  } while (0)

int main(int count, char** given) {
  if (count != 3) return 64;
  ncclXml* xml;
  MUST(xmlAlloc(&xml, NCCL_TOPO_XML_MAX_NODES));
  MUST(ncclTopoGetXmlFromFile(given[1], xml, 1));
  ncclTopoSystem* system;
  MUST(ncclTopoGetSystemFromXml(xml, &system, 0));
  system->inter = atoi(given[2]);
  if (!system->inter)
    for (int n = system->nodes[NET].count - 1; n >= 0; n--) MUST(ncclTopoRemoveNode(system, NET, n));
  MUST(ncclTopoComputePaths(system, NULL));
  MUST(ncclTopoSearchInit(system));
  ncclTopoGraph* graphs = (ncclTopoGraph*)calloc(2, sizeof(ncclTopoGraph));
  graphs[0].id = 0;
  graphs[0].pattern = NCCL_TOPO_PATTERN_RING;
  graphs[0].minChannels = 1;
  graphs[0].maxChannels = MAXCHANNELS / 2;
  MUST(ncclTopoCompute(system, graphs));
  graphs[1].id = 1;
  graphs[1].pattern = NCCL_TOPO_PATTERN_BALANCED_TREE;
  graphs[1].minChannels = graphs[1].maxChannels = graphs[0].nChannels;
  MUST(ncclTopoCompute(system, graphs + 1));
  ncclTopoGraph* both[2] = {graphs, graphs + 1};
  for (ncclTopoGraph* graph : both) MUST(ncclTopoPrintGraph(system, graph));
  MUST(ncclTopoDumpGraphs(system, 2, both));
  printf("TAKEN\n");
  return 0;
}
