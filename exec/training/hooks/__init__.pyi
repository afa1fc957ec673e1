from .adaptive_hook import AdaptiveHook as AdaptiveHook
from .elastic_sampler import ElasticSampler as ElasticSampler
from .sessions import PATIENT as PATIENT
