"""The verdicts of GrowthBook's gbstats, in the virtual environment that it has to itself.

Reads the cumulative counts (n1, x1, n0, x0) of each row from the .npy file that it is given, and
prints as JSON the p-value of each on the scale that it is given (`relative`, which is gbstats's
default, or `absolute`), and the CPU seconds that all took. It imports nothing of ours.
"""

import json
import sys
import time

import numpy as np
from gbstats.frequentist.tests import SequentialConfig, SequentialTwoSidedTTest
from gbstats.models.statistics import ProportionStatistic

rows = np.load(sys.argv[1]).tolist()
config = SequentialConfig(difference_type=sys.argv[2])
begun = time.process_time()
found = [
    SequentialTwoSidedTTest(
        ProportionStatistic(n=n0, sum=x0), ProportionStatistic(n=n1, sum=x1), config
    ).compute_result()
    for n1, x1, n0, x0 in rows
]
seconds = time.process_time() - begun
json.dump({"p": [float(one.p_value) for one in found], "seconds": seconds}, sys.stdout)
