// Package main is Kubernetes' kubelet, for the real nodes of the local stack. It is a module of its own, so that a
// change here does not rebuild the control plane (devstack/kubernetes), and so that a stack without real nodes never
// builds it. Its go.mod must name the same versions as that of devstack/kubernetes.
package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	os.Exit(cli.Run(app.NewKubeletCommand(context.Background())))
}
