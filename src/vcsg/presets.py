"""Every method of the family as an optimizer class of its own."""

from vcsg import family
from vcsg.optimizer import FiniteSumOptimizer


class GD(FiniteSumOptimizer, method=family.gd): ...


class SGD(FiniteSumOptimizer, method=family.sgd): ...


class SVRG(FiniteSumOptimizer, method=family.svrg): ...


class SCSG(FiniteSumOptimizer, method=family.scsg): ...


class BatchingSVRG(FiniteSumOptimizer, method=family.batching_svrg): ...


class WeightedSVRG(FiniteSumOptimizer, method=family.weighted_svrg): ...


class BiasedSVRG(FiniteSumOptimizer, method=family.biased_svrg): ...


class VCSG(FiniteSumOptimizer, method=family.vcsg): ...


class PaperSGD(FiniteSumOptimizer, method=family.paper_sgd): ...


class PaperSVRG(FiniteSumOptimizer, method=family.paper_svrg): ...
