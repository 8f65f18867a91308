# An application with zkelectd around it: the application's image and the binary. CMD stays the application's command, which now
# runs only on the leader.
#
#   docker build -f deploy/sidecar.Dockerfile --build-arg APP_IMAGE=your/app:1.2.3 -t your/app-ha:1.2.3 .
#
# The group is created once, with the settings of the members: docker run --entrypoint zkelectd … your/app-ha:1.2.3 init
ARG ZKELECTD_IMAGE=zkelectd:dev
ARG APP_IMAGE=debian:12.11-slim
FROM ${ZKELECTD_IMAGE} AS zkelectd

FROM ${APP_IMAGE}
COPY --from=zkelectd /zkelectd /usr/local/bin/zkelectd
ENV ZKELECTD_HTTP_LISTEN=127.0.0.1:7980
USER 65532:65532
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 CMD ["zkelectd", "probe", "/livez"]
ENTRYPOINT ["zkelectd", "run", "--"]
CMD ["sleep", "infinity"]
