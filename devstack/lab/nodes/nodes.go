// Package nodes is the component incusd of a local stack with real nodes: the server of Incus in which the machines
// are, the way from the machines to the API server, and the approver of kubelets' serving certificates.
package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"millwright/devstack/lab/forward"
	"millwright/devstack/lab/incus"
)

// Options are the properties of the component.
type Options struct {
	Repo      string        // root of the clone
	Dir       string        // data of Incus; other processes find the server there (incus.Open)
	Network   incus.Network // network of the machines, which the supervisor has locked
	APIServer string        // address of the API server on loopback; machines find it at Network.APIServer
	// Kubeconfig is the path of the admin's kubeconfig. The approver impersonates the user incusd, and so has only the
	// rights of that user.
	Kubeconfig string
	Health     string // address at which /readyz is served
}

// approverUser is the user of the approver at the API server. rbac/approver.yaml gives this user its rights.
const approverUser = "incusd"

// Run starts the server and serves machines until ctx ends; then it ends the server with all machines, and returns when
// nothing of them is left.
func Run(ctx context.Context, o Options) (err error) {
	server, err := incus.Start(ctx, o.Dir, incus.Options{Repo: o.Repo, Network: o.Network, Output: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop(context.WithoutCancel(ctx))) }()

	entrance, err := net.Listen("tcp", o.Network.Entrance())
	if err != nil {
		return fmt.Errorf("listen for machines: %w", err)
	}
	health, err := net.Listen("tcp", o.Health)
	if err != nil {
		return errors.Join(fmt.Errorf("listen for health checks: %w", err), entrance.Close())
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return errors.Join(fmt.Errorf("read kubeconfig: %w", err), entrance.Close(), health.Close())
	}
	config.Impersonate.UserName = approverUser
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return errors.Join(fmt.Errorf("make client: %w", err), entrance.Close(), health.Close())
	}
	slog.Info("incusd is ready", "address", server.Address, "network", o.Network.Subnet)

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return forward.Serve(ctx, entrance, forward.To(o.APIServer)) })
	group.Go(func() error { return approver{clients, addressesIn(server)}.run(ctx) })
	group.Go(func() error { return serveHealth(ctx, health) })
	group.Go(func() error {
		select {
		case <-server.Done():
			return errors.New("incusd ended by itself: see its log, " + server.LogPath())
		case <-ctx.Done():
			return nil
		}
	})
	return group.Wait()
}

// serveHealth answers each request for /readyz with 200. It is called when everything is ready.
func serveHealth(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health checks: %w", err)
	}
	return nil
}

// addressesIn returns a function that asks Incus for the addresses of the instances of a name, in all projects.
func addressesIn(server *incus.Server) func(ctx context.Context, name string) ([]string, error) {
	return func(ctx context.Context, name string) ([]string, error) {
		text, err := server.Run(ctx, "list", "--all-projects", "--format=json", "name="+name)
		if err != nil {
			return nil, err
		}
		var instances []struct {
			Name  string
			State struct {
				Network map[string]struct{ Addresses []struct{ Address string } }
			}
		}
		if err := json.Unmarshal(text, &instances); err != nil {
			return nil, fmt.Errorf("read the list of instances: %w", err)
		}
		var addresses []string
		for _, instance := range instances {
			for _, address := range instance.State.Network["eth0"].Addresses {
				if instance.Name == name {
					addresses = append(addresses, address.Address)
				}
			}
		}
		return addresses, nil
	}
}
