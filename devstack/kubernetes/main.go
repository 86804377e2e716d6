// Package main is Kubernetes in the local stack: one multi-call binary whose first argument names a role. The devstack
// command starts one process for each role, so that a test can kill and restart a single component. The binary has no
// flags of its own: each role has the flags of the upstream component.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	_ "time/tzdata" // CronJob time zones in kube-apiserver and kube-controller-manager

	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// role is one component of the control plane. Before run is called, os.Args has the arguments that the upstream main
// expects. run returns the exit code of the process.
type role struct {
	name string
	run  func() int
}

func roles() []role {
	return []role{
		{"etcd", etcd},
		{"kube-apiserver", apiServer},
		{"kube-controller-manager", controllerManager},
		{"kube-scheduler", scheduler},
		{"kubectl", kubectl},
		{"kwok", kwok},
		{"stages", stages},
	}
}

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	i := slices.IndexFunc(roles(), func(r role) bool { return r.name == os.Args[1] })
	if i < 0 {
		usage()
	}
	os.Args = append([]string{os.Args[1]}, os.Args[2:]...)
	os.Exit(roles()[i].run())
}

func usage() {
	names := make([]string, 0, len(roles()))
	for _, r := range roles() {
		names = append(names, r.name)
	}
	fmt.Fprintf(os.Stderr, "usage: millwright-kubernetes ROLE [flags]\nroles: %s\n", strings.Join(names, ", "))
	os.Exit(2)
}
