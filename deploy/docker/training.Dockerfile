# A base for training jobs: Python, torch, and the library that reports to rota. From the top of the
# repository:
#   podman build --file deploy/docker/training.Dockerfile --tag rota-training .
# A lab's own image begins with `FROM rota-training` and adds what its programs import.
ARG PYTHON=python:3.12-slim

FROM ${PYTHON} AS build
ARG TORCH=torch
WORKDIR /build
COPY constraints.txt ./
COPY trainer trainer
# Compiled here: whoever runs it may write nowhere, and would do it at every start.
RUN python -m venv /opt/training \
    && /opt/training/bin/pip install --no-cache-dir --constraint constraints.txt \
       ./trainer "${TORCH}"

FROM ${PYTHON}
COPY --from=build /opt/training /opt/training
# Not the daemon's number, which owns the daemon's files.
RUN useradd --uid 10002 --user-group --create-home --home-dir /home/train train \
    && install --directory --owner 10002 --group 10002 /workspace
ENV PATH=/opt/training/bin:/usr/local/bin:/usr/bin:/bin
USER 10002:10002
WORKDIR /workspace
CMD ["python"]
