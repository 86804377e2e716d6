// Command virtualcloud runs the cloud of the devstack as a separate process, so that instances outlive every process of
// Millwright. Package cloud simulates the cloud; this file only reads flags, serves HTTP and stops the server.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"millwright/devstack/virtualcloud/cloud"
	"millwright/process/commandline"
)

// shutdownGracePeriod is the time that pending calls have after SIGTERM. Calls that wait for a latency or a hang are
// refused at once.
const shutdownGracePeriod = 3 * time.Second

func main() {
	commandline.Main(newCommand())
}

func newCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "virtualcloud",
		Short: "Be the cloud of the local stack: keep simulated instances",
		Args:  cobra.NoArgs,
	}
	set := c.Flags()
	address := set.String(
		"address",
		"127.0.0.1:9900",
		"host:port to listen on; there is no authentication on /admin, so keep it on loopback",
	)
	data := set.String("data", "virtualcloud-data", "folder for instances and behaviour; made when missing")
	kubeconfig := set.String("kubeconfig", "", "cluster in which instances register Nodes; empty means none")
	regions := set.StringToString(
		"region-kubeconfigs",
		nil,
		"REGION=FILE: cluster in which the instances of a region register Nodes, instead of that of --kubeconfig",
	)
	level := slog.LevelInfo
	set.TextVar(&level, "log-level", level, "lowest `level` of the lines: DEBUG, INFO, WARN or ERROR")
	c.RunE = func(c *cobra.Command, _ []string) error {
		logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
		return runCloud(c.Context(), *address, *data, *kubeconfig, *regions, logger)
	}
	return c
}

// newNodeClient returns the clusters in which instances register Nodes; nil without a kubeconfig.
func newNodeClient(kubeconfig string, regions map[string]string) (cloud.NodeClient, error) {
	if kubeconfig == "" {
		if len(regions) > 0 {
			return nil, errors.New("--region-kubeconfigs needs --kubeconfig for all other regions")
		}
		return nil, nil
	}
	others, err := cloud.NewKubeNodeClient(kubeconfig)
	if err != nil || len(regions) == 0 {
		return others, err
	}
	byRegion := map[string]cloud.NodeClient{}
	for region, file := range regions {
		if byRegion[region], err = cloud.NewKubeNodeClient(file); err != nil {
			return nil, fmt.Errorf("region %s: %w", region, err)
		}
	}
	return cloud.NewRegionNodeClient(byRegion, others), nil
}

func runCloud(
	ctx context.Context,
	address, data, kubeconfig string,
	regions map[string]string,
	logger *slog.Logger,
) error {
	nodes, err := newNodeClient(kubeconfig, regions)
	if err != nil {
		return err
	}
	c, err := cloud.Open(cloud.Options{Dir: data, Logger: logger, NodeClient: nodes})
	if err != nil {
		return fmt.Errorf("open cloud: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return errors.Join(fmt.Errorf("listen: %w", err), c.Close())
	}
	server := &http.Server{Handler: c.Handler(), ReadHeaderTimeout: 10 * time.Second}
	server.RegisterOnShutdown(c.Stop)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	logger.Info("virtualcloud is ready", "address", listener.Addr().String(), "data", data, "nodes", kubeconfig != "")

	select {
	case err = <-failed:
		err = fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
		logger.Info("virtualcloud is stopping")
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGracePeriod)
		defer cancel()
		if server.Shutdown(grace) != nil {
			err = server.Close()
		}
	}
	return errors.Join(err, c.Close())
}
