"""Networks for both directions, the pair they form, and its files."""

from deceptron.maps.checkpoint import load, save, shipped
from deceptron.maps.layouts import LAYOUTS
from deceptron.maps.linear_part import LowRank, SpectralGain
from deceptron.maps.linear_start import LinearStart
from deceptron.maps.mlp import MLP, FlatMLP
from deceptron.maps.network import Network, build, kinds, register
from deceptron.maps.pair import Deceptron
from deceptron.maps.published import cnn_pair, mlp_pair
from deceptron.maps.resampled import Resampled
from deceptron.maps.residual_cnn import ResidualCNN
from deceptron.maps.unet import UNet
from deceptron.maps.wiener import Wiener

__all__ = [
    "LAYOUTS",
    "MLP",
    "Deceptron",
    "FlatMLP",
    "LinearStart",
    "LowRank",
    "Network",
    "Resampled",
    "ResidualCNN",
    "SpectralGain",
    "UNet",
    "Wiener",
    "build",
    "cnn_pair",
    "kinds",
    "load",
    "mlp_pair",
    "register",
    "save",
    "shipped",
]
