# Image of the daemon for Kubernetes. Build it from the root of the repository:
#   podman build --file deploy/docker/daemon.Dockerfile --tag rota .
ARG PYTHON=python:3.12-slim

FROM ${PYTHON} AS build
WORKDIR /build
COPY LICENSE README.md CHANGELOG.md pyproject.toml hatch_build.py constraints.txt ./
COPY src src
COPY trainer trainer
# Compile here: the file system is read-only at run time, so Python would compile at every start.
RUN python -m venv /opt/rota \
    && /opt/rota/bin/pip install --no-cache-dir --constraint constraints.txt \
       '.[kubernetes]' \
    && /opt/rota/bin/pip uninstall --yes pip

FROM ${PYTHON}
COPY --from=build /opt/rota /opt/rota
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /var/lib/rota rota \
    && install --directory --owner 10001 --group 10001 --mode 0700 /var/lib/rota
ENV PATH=/opt/rota/bin:/usr/local/bin:/usr/bin:/bin \
    ROTA_HOME=/var/lib/rota/state \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/lib/rota
EXPOSE 8800
ENTRYPOINT ["rota"]
CMD ["up", "--engine", "kubernetes", "--listen", "0.0.0.0:8800", "--plain-http"]
