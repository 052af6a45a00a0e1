"""The variants as methods of the registry, so that a study can run them: importing this module registers them."""

from __future__ import annotations

from vcsg.experiments.ablation.variants import VARIANTS, Variant
from vcsg.method import Method
from vcsg.method.registry import register


def _register(variant: Variant) -> None:
    def build() -> Method:
        return variant.make(None)

    build.__name__ = variant.key
    build.__doc__ = f"{variant.part}: {variant.label}".removeprefix(": ")
    register(build)


for _variant in VARIANTS:
    _register(_variant)
