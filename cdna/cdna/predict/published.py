# SPDX-License-Identifier: MIT
"""Published measurements of an MI300X, and how far likely times lie from them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Accuracy", "Published", "accuracy", "published"]
