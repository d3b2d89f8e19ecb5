#!/bin/sh
# Runs one program of a deployment, in the foreground:
#   entrypoint.sh code-server | webserver | daemon
#   entrypoint.sh health code-server | webserver | daemon    exit code 0: that program works
#   entrypoint.sh migrate                                    brings Dagster's tables to the installed version
#   entrypoint.sh executor                                   an executor of Spark on Kubernetes; Spark starts it, not you
#   entrypoint.sh status --json                              any other word is a command of cdc-platform
#
# CDC_ETC   configuration: cdc.yaml, and dagster.yaml where the one beside this script isn't wanted  [/etc/cdc]
# CDC_HOME  state: Dagster's logs, locks of runs; a relative `lake` lies here                         [/var/lib/cdc]
# CDC_BIND  address that servers listen on                                                           [127.0.0.1]
# CDC_CODE_SERVER_HOST, CDC_CODE_SERVER_PORT   where webserver and daemon find the code server       [127.0.0.1, 4000]
# CDC_WEBSERVER_PORT                                                                                 [3000]
# CDC_DAGSTER_URL   where the code server asks for a reload when there are new tables      [http://127.0.0.1:<that port>]
# DAGSTER_PG_HOST, _PORT, _DB, _USER, _PASSWORD  Dagster's database; the password has no default     [127.0.0.1, 5432,
#                                                                                                      dagster, dagster]
set -eu
here=$(dirname -- "$(readlink -f -- "$0")")
: "${CDC_ETC:=/etc/cdc}" "${CDC_HOME:=/var/lib/cdc}" "${CDC_BIND:=127.0.0.1}" "${CDC_WEBSERVER_PORT:=3000}"
export CDC_CODE_SERVER_HOST="${CDC_CODE_SERVER_HOST:-127.0.0.1}" CDC_CODE_SERVER_PORT="${CDC_CODE_SERVER_PORT:-4000}"
export DAGSTER_PG_HOST="${DAGSTER_PG_HOST:-127.0.0.1}" DAGSTER_PG_PORT="${DAGSTER_PG_PORT:-5432}"
export DAGSTER_PG_DB="${DAGSTER_PG_DB:-dagster}" DAGSTER_PG_USER="${DAGSTER_PG_USER:-dagster}"
export CDC_DAGSTER_URL="${CDC_DAGSTER_URL:-http://127.0.0.1:$CDC_WEBSERVER_PORT}"
export DAGSTER_HOME="$CDC_HOME/dagster" CDC_CONFIG="$CDC_HOME/cdc.yaml" PYTHONUNBUFFERED=1

fail() {
  echo "entrypoint: $1" >&2
  exit 2
}

# State lies beside cdc.yaml, and the folder of configuration is read-only in a container: hence a link. Of dagster.yaml
# there is a copy, taken at each start, since Dagster wants it in its home; written beside and renamed, since the programs
# may share the folder.
prepare() {
  [ -r "$CDC_ETC/cdc.yaml" ] || fail "$CDC_ETC/cdc.yaml is missing. It says what to follow: docs/configuration.md"
  mkdir -p "$DAGSTER_HOME"
  [ "$(readlink "$CDC_CONFIG")" = "$CDC_ETC/cdc.yaml" ] || ln -sfn "$CDC_ETC/cdc.yaml" "$CDC_CONFIG"
  settings="$CDC_ETC/dagster.yaml"
  [ -r "$settings" ] || settings="$here/dagster.yaml"
  cp "$settings" "$DAGSTER_HOME/dagster.yaml.$$"
  mv "$DAGSTER_HOME/dagster.yaml.$$" "$DAGSTER_HOME/dagster.yaml"
}

health() {
  case $1 in
    code-server) exec dagster api grpc-health-check -p "$CDC_CODE_SERVER_PORT" ;;
    webserver)
      exec python -c "from urllib.request import urlopen; urlopen('http://127.0.0.1:$CDC_WEBSERVER_PORT/server_info', timeout=9)"
      ;;
    daemon) exec dagster-daemon liveness-check ;;
    *) fail "health of what? code-server, webserver, daemon" ;;
  esac
}

# As in Spark's own image, with the Python and the jars of this one. All that it takes is what Spark's driver puts into a
# pod's environment, Java's options as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 and so on.
executor() {
  [ -n "${SPARK_DRIVER_URL:-}" ] || fail "SPARK_DRIVER_URL is missing. Spark's driver starts executors: docs/deployment.md"
  SPARK_HOME=$(python -c 'from importlib.util import find_spec; print(*find_spec("pyspark").submodule_search_locations)')
  export SPARK_HOME
  set --
  while option=$(printenv "SPARK_JAVA_OPT_$#"); do
    set -- "$@" "$option"
  done
  exec java "$@" -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
}

case ${1:-} in
  code-server)
    prepare
    python -m cdc_platform.automation.instance # runs of a code server that ended: nobody else would notice
    exec dagster code-server start -h "$CDC_BIND" -p "$CDC_CODE_SERVER_PORT" -m cdc_platform.definitions --location-name cdc
    ;;
  webserver)
    prepare
    exec dagster-webserver -h "$CDC_BIND" -p "$CDC_WEBSERVER_PORT" -w "$here/workspace.yaml"
    ;;
  daemon)
    prepare
    exec dagster-daemon run -w "$here/workspace.yaml"
    ;;
  health) health "${2:-}" ;;
  executor) executor ;;
  migrate)
    prepare
    exec dagster instance migrate
    ;;
  "")
    fail "name a program (code-server, webserver, daemon), health, migrate, or a command of cdc-platform"
    ;;
  setup | -*)
    exec cdc-platform "$@"
    ;;
  *)
    prepare
    exec cdc-platform "$@"
    ;;
esac
