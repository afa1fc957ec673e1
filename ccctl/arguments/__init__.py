"""What the words of the command line mean: units, networks, collectives, files of algorithms, contenders."""
