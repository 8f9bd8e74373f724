"""Every family of kernels, in the order in which they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopt_starters.families.attention import AttentionKernels
from kopt_starters.families.convolution import ConvolutionFamily
from kopt_starters.families.cross_entropy import CrossEntropy
from kopt_starters.families.cross_entropy_cpu import CrossEntropyCpu
from kopt_starters.families.mlp import GatedMlp
from kopt_starters.families.pipeline import Pipeline
from kopt_starters.families.pointwise import Pointwise
from kopt_starters.families.pointwise_cpu import PointwiseCpu
from kopt_starters.families.pooling import Pooling
from kopt_starters.families.pooling_cpu import PoolingCpu
from kopt_starters.families.products import Products, ProductsInHalves
from kopt_starters.families.reductions import Reductions
from kopt_starters.families.reductions_cpu import ReductionsCpu
from kopt_starters.families.reductions_cuda import ReductionsCuda
from kopt_starters.families.rotary import Rotary
from kopt_starters.families.scans import Scans
from kopt_starters.families.scans_cpu import ScansCpu
from kopt_starters.families.vendor import Vendor, VendorPipeline

if TYPE_CHECKING:
    from kopt_starters.family import Family

_WHOLE: tuple[Family, ...] = (
    Pointwise(),
    PointwiseCpu(),
    ProductsInHalves(),
    Products(),
    Reductions(),
    ReductionsCpu(),
    ReductionsCuda(),
    ConvolutionFamily(),
    Pooling(),
    PoolingCpu(),
    Scans(),
    ScansCpu(),
    CrossEntropy(),
    CrossEntropyCpu(),
    AttentionKernels(),
    Rotary(),
)
_JOINED: tuple[Family, ...] = (GatedMlp(),)
"""Families of several heavy operators, which others compute one by one."""
FAMILIES: tuple[Family, ...] = (
    *_WHOLE,
    *_JOINED,
    Vendor(),
    VendorPipeline(_WHOLE),
    Pipeline(_WHOLE, _JOINED),
)
"""The last one asks the others for pieces of what none of them computes whole."""
