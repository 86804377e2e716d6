// Command mcm runs a released machine-controller-manager (MCM) on the local stack, against its API server and its
// virtual cloud. The test of the takeover needs it: test/integration/takeover. It is a module of its own, with the
// versions of Kubernetes that MCM was released with, so that Millwright's root module does not depend on MCM.
//
//	mcm manager --target-kubeconfig FILE --namespace NAME    MCM's process for deployments and sets
//	mcm machines --target-kubeconfig FILE --namespace NAME   MCM's process for machines, with the driver of this package
//
// The flags are MCM's. The driver adds two to "mcm machines": --virtualcloud-address, the URL of the virtual cloud, and
// --cluster-name, the tag for the cluster that instances get, as from Millwright.
package main

import (
	"fmt"
	"os"

	manager "github.com/gardener/machine-controller-manager/cmd/machine-controller-manager/app"
	managerflags "github.com/gardener/machine-controller-manager/cmd/machine-controller-manager/app/options"
	machines "github.com/gardener/machine-controller-manager/pkg/util/provider/app"
	machinesflags "github.com/gardener/machine-controller-manager/pkg/util/provider/app/options"
	"github.com/spf13/pflag"
	"k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "mcm: name the process: manager or machines")
		os.Exit(2)
	}
	process := os.Args[1]
	os.Args = append(os.Args[:1], os.Args[2:]...)
	fmt.Fprintln(os.Stderr, "mcm:", run(process)) // it returns only after an error
	os.Exit(1)
}

// run does what the main functions of MCM's two processes do.
func run(process string) error {
	switch process {
	case "manager":
		server := managerflags.NewMCMServer()
		server.AddFlags(pflag.CommandLine)
		begin()
		return manager.Run(server)
	case "machines":
		server := machinesflags.NewMCServer()
		server.AddFlags(pflag.CommandLine)
		driver := &cloud{}
		pflag.StringVar(&driver.address, "virtualcloud-address", "", "URL of the virtual cloud")
		pflag.StringVar(&driver.cluster, "cluster-name", "", "name of the cluster with which instances are tagged")
		begin()
		return machines.Run(server, driver)
	default:
		return fmt.Errorf("no process %q: have manager and machines", process)
	}
}

// begin reads the flags, and starts the log.
func begin() {
	flag.InitFlags()
	logs.InitLogs()
}
