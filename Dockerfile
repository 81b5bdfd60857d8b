# One image for exporter, probe and demo: `docker build .` needs no BuildKit. The base is an argument, so that it can
# come from a mirror: any image with Python 3.11 or later and its venv module.
ARG PYTHON_IMAGE=python:3.11-slim-trixie

FROM ${PYTHON_IMAGE} AS build
WORKDIR /app
COPY pyproject.toml requirements.lock ./
# The dependencies that pyproject.toml names, at the versions of the lock. Wheels only: nothing is compiled, and no
# compiler is there. pip removes itself: the end has no installer either.
RUN python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
        > runtime.txt \
    && python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --only-binary :all: -r runtime.txt -c requirements.lock \
    && /opt/venv/bin/pip uninstall --yes pip setuptools \
    && rm pyproject.toml requirements.lock runtime.txt
COPY exporter exporter
COPY probes probes
COPY demo demo
RUN python3 -m compileall -q .

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="apc-observability" \
      org.opencontainers.image.description="Exporter, probe and demo engine for vLLM's prefix caching" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY compose/image/with-secrets compose/image/healthy.py /opt/image/
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app /app
WORKDIR /app
# Nothing is written: the root may be read-only. A container listens on all of its own addresses; what of that the
# machine sees, `ports` in compose.yaml says.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    APC_EXPORTER_HOST=0.0.0.0 \
    APC_PROBE_HOST=0.0.0.0
USER 10001:10001
EXPOSE 9391 9392
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python3", "-IS", "/opt/image/healthy.py", "9391", "/-/healthy"]
ENTRYPOINT ["/bin/sh", "/opt/image/with-secrets"]
CMD ["python3", "-m", "exporter"]
