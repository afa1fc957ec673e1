from .alpha_beta_fit import LinkFit as LinkFit, fit as fit, fit_paces as fit_paces, theil_sen as theil_sen
from .bootstrap import in_random_order as in_random_order, least as least, lowered as lowered
from .changepoint import (
    MAD_TO_SIGMA as MAD_TO_SIGMA,
    MEDIAN_TO_MEAN as MEDIAN_TO_MEAN,
    Steady as Steady,
    robust_level as robust_level,
)
