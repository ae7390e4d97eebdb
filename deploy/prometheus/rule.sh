#!/bin/sh
# The alerts of alerts.yaml as a PrometheusRule for the Prometheus operator:
#   deploy/prometheus/rule.sh >deploy/kubernetes/monitoring/rule.yaml
set -eu
cat <<'END'
# Made by deploy/prometheus/rule.sh of alerts.yaml: change that.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: embd
spec:
END
grep -v '^#' "$(dirname "$0")/alerts.yaml" | sed 's/^./  &/'
