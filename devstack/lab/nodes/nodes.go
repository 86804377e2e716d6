// Package nodes is the component incusd of a local stack with real nodes. The component runs the Incus server with the
// machines, forwards TCP connections from the machines to the API server, and approves kubelets' serving certificates.
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

// Options are the options of Run.
type Options struct {
	Repo             string        // root of the clone
	Dir              string        // folder with the data of Incus; other processes pass it to incus.Open
	Network          incus.Network // network of the machines, locked by the supervisor
	APIServerAddress string        // the API server's address on loopback; machines use Network.APIServerURL
	// Kubeconfig is the path of the admin's kubeconfig. The approver impersonates the user incusd and has only this
	// user's rights.
	Kubeconfig    string
	HealthAddress string // address of /readyz
}

// approverUser is the approver's user name at the API server. rbac/approver.yaml grants the rights of this user.
const approverUser = "incusd"

// Run starts the server and serves machines until ctx ends. When ctx has ended, Run stops the server and all machines,
// and returns when no process of the server and the machines is left.
func Run(ctx context.Context, o Options) (err error) {
	server, err := incus.Start(ctx, o.Dir, incus.Options{Repo: o.Repo, Network: o.Network, Output: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop(context.WithoutCancel(ctx))) }()

	entrance, err := net.Listen("tcp", o.Network.APIServerAddress())
	if err != nil {
		return fmt.Errorf("listen for machines: %w", err)
	}
	health, err := net.Listen("tcp", o.HealthAddress)
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
	slog.Info("incusd is ready", "address", server.URL, "network", o.Network.Subnet)

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return forward.Serve(ctx, entrance, forward.NewAddressDialer(o.APIServerAddress)) })
	group.Go(func() error { return approver{clients, instanceAddressLookup(server)}.run(ctx) })
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

// serveHealth serves /readyz with the status 200. Run calls serveHealth when the server is ready.
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

// instanceAddressLookup returns a function that reads from Incus the addresses of the instances with this name, in all
// projects.
func instanceAddressLookup(server *incus.Server) func(ctx context.Context, name string) ([]string, error) {
	return func(ctx context.Context, name string) ([]string, error) {
		text, err := server.RunIncus(ctx, "list", "--all-projects", "--format=json", "name="+name)
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
