# SPDX-License-Identifier: MIT
# The course for one user, on any base that has Debian's or Ubuntu's packages. For an MI300X take an image with a ROCm
# build of torch 2.11 to 2.13 and Python 3.11 to 3.13, by a full tag (`latest` may have a newer Python):
#   docker build -f docker/course.Dockerfile --build-arg VENV=none -t rocm-llm-guide \
#     --build-arg BASE=rocm/pytorch:rocm10.1_ubuntu24.04_py3.12_pytorch_release_2.13.0 .
# For a CPU:
#   docker build -f docker/course.Dockerfile -t rocm-llm-guide:cpu .
ARG BASE=python:3.12-slim-bookworm
# hadolint ignore=DL3006
FROM ${BASE}

# .venv: an environment of its own; none: the base's Python, whose torch is kept.
ARG VENV=.venv
# The build for a CPU: the package index's own brings 3 GB for NVIDIA GPUs.
ARG ROCM_GUIDE_TORCH="torch==2.13.0+cpu --extra-index-url https://download.pytorch.org/whl/cpu"
ENV PIP_NO_CACHE_DIR=1
SHELL ["/bin/bash", "-o", "pipefail", "-c"]

# A base without a Python, or whose Python has no venv or no headers (GPTQ's regular expressions are built from source,
# torch.compile compiles), gets the distribution's.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates git libpcre2-dev make build-essential \
    && if ! python3 -c 'import ensurepip, os, sysconfig, venv; os.stat(sysconfig.get_path("include") + "/Python.h")'; \
       then apt-get install --yes --no-install-recommends python3 python3-venv python3-dev; fi \
    && apt-get clean && rm -rf /var/lib/apt/lists/*

# Ubuntu's images bring a user with number 1000; the learner takes its place. -l: no sparse log of 300 MB.
RUN if getent passwd 1000 >/dev/null; then userdel --remove "$(getent passwd 1000 | cut -d: -f1)" 2>/dev/null || true; fi \
    && useradd -l --create-home --uid 1000 --shell /bin/bash learner \
    && for group in video render; do getent group "$group" >/dev/null || groupadd --system "$group"; usermod -aG "$group" learner; done

COPY --chown=1000:1000 . /opt/course
WORKDIR /opt/course
# With VENV=none the libraries go into the base's Python, which is root's.
RUN if [ "$VENV" = none ]; then make install VENV=none; fi \
    && chown -R learner:learner /opt/course
USER 1000
ENV HOME=/home/learner PATH=/opt/course/.venv/bin:/home/learner/.local/bin:$PATH OMP_NUM_THREADS=4
RUN if [ "$VENV" != none ]; then make install VENV="$VENV" ROCM_GUIDE_TORCH="$ROCM_GUIDE_TORCH"; fi \
    && python3 -m rocm_guide.cli.main list >/dev/null

EXPOSE 8888
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8888/api', timeout=4)"]
# JupyterLab prints its address with a token; `docker run IMAGE make course` runs every notebook instead.
CMD ["python3", "-m", "rocm_guide.cli.main", "lab", "--", "--no-browser", "--ip=0.0.0.0", "--port=8888"]
