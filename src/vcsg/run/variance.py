"""S* and ‖∇f‖² from an anchor, at no extra gradient.

An anchor of B samples, drawn without replacement, is evaluated in K chunks of m_1, …, m_K samples. With the chunk
means g_k and the overall mean g,

    s² = Σ m_k‖g_k − g‖² / (K − 1)

has mean n/(n−1)·S*, whatever the chunk sizes: E‖g_k − ∇f‖² = s²(1/m_k − 1/n), summed with weights m_k, less the
same for g. So S* ≈ (n−1)/n·s², and ‖g‖² − s²(1/B − 1/n) is an unbiased estimate of ‖∇f(y)‖². Chunks of one sample
give the exact S* when B = n. Where a loop hands over the samples, an anchor may reach over several of its passes, r_p
samples from pass p, and passes are independent of each other. With w = Σr_p²/B² in place of 1,

    E‖g − ∇f‖² = s²(1/B − w/n)    and    s² = Σ m_k‖g_k − g‖² / (K − 1 − (1 − w)B/n).

All of it holds for deterministic f_i: dropout and random augmentation leave noise even
at B = n, and with BatchNorm in training mode f is no sum over samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MIN_CHUNKS = 8
"""The fewest chunks of an anchor (fewer only where B is smaller), so that s² has at least 7 degrees of freedom."""


def chunks(B: int, largest: int, least: int = 1) -> tuple[int, ...]:
    """The sizes of the chunks that an anchor of B samples is cut into, of `least` samples or more.

    They are `largest`, its half, its quarter and so on, so that anchors of all sizes have a few sizes of chunks in
    common: chunks of the largest, or where those were too few, MIN_CHUNKS of the two sizes next to B / MIN_CHUNKS.
    The last chunk takes what is left. As each has the same weight in s², it is at least half as large as the smaller
    of the others.
    """
    big = small = max(largest, least)
    while MIN_CHUNKS * small > B and small > least:
        big, small = small, max(small // 2, least)
    if big > small and MIN_CHUNKS * small <= B:
        larger = (B - MIN_CHUNKS * small) // (big - small)
        sizes = [big] * larger + [small] * (MIN_CHUNKS - larger)
    else:
        sizes = [small] * (B // small)
    rest, half = B - sum(sizes), small // 2
    if 0 < rest < half and half >= least:
        sizes[-1:] = half, small - half + rest
    elif rest >= least or not sizes:
        sizes.append(rest)
    else:
        sizes[-1] += rest
    return tuple(sizes)


@dataclass
class AnchorSum:
    """The running statistics of an anchor; its mean gradient lives with the caller.

    The sum of squares is updated about the running mean, so it does not cancel where the variance is far below ‖g‖².
    """

    samples: int = 0
    chunks: int = 0
    loss: float = 0.0
    spread: float = 0.0
    """Σ m_k‖g_k − g‖² so far."""
    loss_spread: float = 0.0
    """The same of the losses."""

    def take(self, size: int, loss: float, deviation: float) -> None:
        """Count one chunk that is in the mean; `deviation` is ‖g_k − g‖² from the mean before it."""
        before, after = self.samples, self.samples + size
        self.spread += size * before / after * deviation
        away = loss - self.loss
        self.loss_spread += size * before / after * (away * away)  # away**2 raises where it overflows
        self.loss += (loss - self.loss) * size / after
        self.samples, self.chunks = after, self.chunks + 1

    def close(self, n: int, g_norm2: float, overlap: float = 1.0) -> Anchor:
        freedom = self.chunks - 1 - (1 - overlap) * self.samples / n
        freedom = freedom if freedom > 1e-9 else math.nan
        return Anchor(
            n=n,
            B=self.samples,
            loss=self.loss,
            loss_s2=self.loss_spread / freedom,
            g_norm2=g_norm2,
            s2=self.spread / freedom,
            overlap=overlap,
        )


@dataclass(frozen=True)
class Anchor:
    """The statistics of f at a point, from an anchor of B of n samples."""

    n: int
    B: int
    loss: float
    """The mean loss over the anchor's samples, and the penalty of `weight_decay`: f by these samples."""
    loss_s2: float
    """The sample variance of the losses."""
    g_norm2: float
    """‖g‖²."""
    s2: float
    """The sample variance s²; NaN for an anchor of a single chunk."""
    overlap: float = 1.0
    """Σr_p²/B², where r_p of the samples are from pass p of a loop; 1 for samples without replacement."""

    @property
    def whole(self) -> bool:
        """Whether each of the n samples is in it once."""
        return self.B == self.n and self.overlap == 1.0

    @property
    def variance(self) -> float:
        """S*, the mean of ‖∇f_i − ∇f‖² over all n samples: an unbiased estimate, exact for B = n in ones."""
        return 0.0 if self.n == 1 else (self.n - 1) / self.n * self.s2

    @property
    def moment(self) -> float:
        """E‖∇f_i‖² = ‖g‖² + S*, as far as it is known."""
        return self.g_norm2 + (0.0 if math.isnan(self.s2) else self.variance)

    @property
    def noise(self) -> float:
        """E‖g − ∇f‖² = s²(1/B − w/n), with w = `overlap`."""
        return 0.0 if self.whole else self.s2 * self._share

    @property
    def loss_error(self) -> float:
        """The standard error of `loss` as an estimate of f."""
        return 0.0 if self.whole else math.sqrt(self.loss_s2 * self._share)

    @property
    def _share(self) -> float:
        return max(0.0, 1 / self.B - self.overlap / self.n)

    @property
    def gradient_norm2(self) -> float:
        """An unbiased estimate of ‖∇f‖² (it can be negative), exact for B = n."""
        return self.g_norm2 - self.noise

    @property
    def rough_bound(self) -> float:
        """(‖g‖ + √(20·noise))², above ‖∇f‖² if s² is the true variance, and often not if it is far below.

        ‖∇f‖ ≤ ‖g‖ + ‖g − ∇f‖, and by Markov's inequality ‖g − ∇f‖² ≤ 20·noise for 19 of 20 anchors, with the true
        variance in `noise`. An anchor that misses the few samples which carry the gradient has both s² and ‖g‖ too
        small: of 2000 samples 4 with all of the gradient, and B = 32, this is below ‖∇f‖² for 94 of 100 anchors. So no
        confidence goes with it. For B = n it is ‖∇f‖² itself.
        """
        return (math.sqrt(self.g_norm2) + math.sqrt(20 * self.noise)) ** 2
