# SPDX-License-Identifier: MIT
"""The checks behind the exercises: each prints [OK] or a [HINT], and returns whether the answer is right."""
