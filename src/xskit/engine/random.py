"""Random streams: each stage instance has its own, so that one stage's draws never shift another's.

xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021), seeded by splitmix64.
"""

from __future__ import annotations

import hashlib
import math

from xskit.jit import MASK64, i64, inlined, u64
from xskit.memory import U64, Record, record_at


class Random(Record):
    """The state of one stream."""

    s0: U64
    s1: U64
    s2: U64
    s3: U64


random_at = record_at(Random)

UNIT_BITS = 53
UNIT = 1 << UNIT_BITS
"""draw() is uniform on 0 .. UNIT - 1; a probability p is the threshold round(p * UNIT)."""


def seed_stream(stream: Random, seed: int, *names: str) -> None:
    """Start a stream from a run's seed and the names of who draws from it."""
    digest = hashlib.sha256(repr((seed, names)).encode()).digest()
    state = int.from_bytes(digest[:8], "little")
    words = []
    for _ in range(4):
        state = (state + 0x9E3779B97F4A7C15) & MASK64
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK64
        words.append(mixed ^ (mixed >> 31))
    stream.s0, stream.s1, stream.s2, stream.s3 = words


@inlined
def draw64(stream: Random) -> int:
    """The next 64 random bits."""
    s0 = stream.s0
    s1 = stream.s1
    s2 = stream.s2
    s3 = stream.s3
    mixed = u64(s0 + s3)
    result = u64((u64(mixed << u64(23)) | (mixed >> u64(41))) + s0)
    shifted = u64(s1 << u64(17))
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    stream.s0 = s0
    stream.s1 = s1
    stream.s2 = s2
    stream.s3 = u64(s3 << u64(45)) | (s3 >> u64(19))
    return result


@inlined
def draw(stream: Random) -> int:
    """A uniform integer, 0 .. UNIT - 1."""
    return i64(draw64(stream) >> u64(11))


@inlined
def uniform(stream: Random) -> float:
    """A uniform number in the open interval (0, 1).

    From 52 bits: with all 53 the half step above the largest draws would be rounded away, up to 1.0.
    """
    return ((draw(stream) >> 1) + 0.5) * (2.0 / UNIT)


@inlined
def normal(stream: Random) -> float:
    """A standard normal number, from one draw.

    The inverse of the normal distribution function by rational functions: Wichura, algorithm AS 241 (PPND16),
    Applied Statistics 37 (1988), accurate to about 1 part in 10**16.
    """
    p = uniform(stream)
    q = p - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        top = 2.5090809287301226727e3
        for c in (
            3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4, 1.3731693765509461125e4,
            1.9715909503065514427e3, 1.3314166789178437745e2, 3.387132872796366608e0,
        ):  # fmt: skip
            top = top * r + c
        low = 5.226495278852854561e3
        for c in (
            2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4, 5.3941960214247511077e3,
            6.8718700749205790830e2, 4.2313330701600911252e1, 1.0,
        ):  # fmt: skip
            low = low * r + c
        return q * top / low
    r = math.sqrt(-math.log(min(p, 1.0 - p)))
    if r <= 5.0:
        r -= 1.6
        top = 7.74545014278341407640e-4
        for c in (
            2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0, 3.64784832476320460504e0,
            5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0,
        ):  # fmt: skip
            top = top * r + c
        low = 1.05075007164441684324e-9
        for c in (
            5.475938084995344946e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1, 6.89767334985100004550e-1,
            1.67638483018380384940e0, 2.05319162663775882187e0, 1.0,
        ):  # fmt: skip
            low = low * r + c
    else:
        r -= 5.0
        top = 2.01033439929228813265e-7
        for c in (
            2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2, 2.96560571828504891230e-1,
            1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0,
        ):  # fmt: skip
            top = top * r + c
        low = 2.04426310338993978564e-15
        for c in (
            1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4, 1.48753612908506148525e-2,
            1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0,
        ):  # fmt: skip
            low = low * r + c
    value = top / low
    return -value if q < 0 else value
