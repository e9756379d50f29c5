# Base image for training jobs: Python, torch and rota_trainer. Build it from the root of the repository:
#   podman build --file deploy/docker/training.Dockerfile --tag rota-training .
# Your own image starts with `FROM rota-training` and adds the packages of your programs.
ARG PYTHON=python:3.12-slim

FROM ${PYTHON} AS build
ARG TORCH=torch
WORKDIR /build
COPY constraints.txt ./
COPY trainer trainer
# Compile here: the file system is read-only at run time, so Python would compile at every start.
RUN python -m venv /opt/training \
    && /opt/training/bin/pip install --no-cache-dir --constraint constraints.txt \
       ./trainer "${TORCH}"

FROM ${PYTHON}
COPY --from=build /opt/training /opt/training
# Not the daemon's uid, which owns the daemon's files.
RUN useradd --uid 10002 --user-group --create-home --home-dir /home/train train \
    && install --directory --owner 10002 --group 10002 /workspace
ENV PATH=/opt/training/bin:/usr/local/bin:/usr/bin:/bin
USER 10002:10002
WORKDIR /workspace
CMD ["python"]
