# SPDX-License-Identifier: MIT
"""Making a model's operations faster: ``attention`` (which implementation), ``compilation`` (torch.compile),
``tunableop``, ``ck``."""
