// Package dashboard has the command that serves pages about a fleet on the person's own machine: what stands still, the
// pools with their rollouts, and the machines with their drains. The pages only read, with the person's own rights.
package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"millwright/starter/kubecli"
)

// dashboardCommand is the command `millwright dashboard` with its flags.
type dashboardCommand struct {
	kubecli.Environment
	access        kubecli.ClusterAccess
	temporalFlags kubecli.TemporalFlags
	namespace     string
	address       string
	port          uint16
	temporalUI    kubecli.TemporalUI
	interval      time.Duration
	actsAsMCM     bool
}

// Command returns the command dashboard.
func Command(e kubecli.Environment) *cobra.Command {
	d := &dashboardCommand{Environment: e}
	c := &cobra.Command{
		Use:   "dashboard",
		Short: "Serve pages about the fleet on this machine, for a browser",
		Long: `dashboard serves pages on 127.0.0.1 until Ctrl-C, and prints their address. The pages show first what stands still, by cause, with the
command that ends the wait; then all pools with their machines, and all clusters; a page for each pool with its rollout, and for each
machine with its life and its drain. They change while objects change, without a reload; without JavaScript they show the state of
the reload.

The pages read the cluster with your own kubeconfig and rights, and change nothing. They need the rights to list and watch
machinedeployments, machinesets and machines, as the role millwright-view has them; --namespace needs these rights in one namespace only.
What you may not read is named on the pages. Rollouts and drains are read when their page is open. The line of a machine's life comes from
Temporal; without Temporal the other parts of the pages work.

The address has a random token, which the browser keeps as a cookie: other users of this machine cannot read the pages. The token ends with
the command. To read the pages from another machine, forward the port with ssh: ssh -L 8234:127.0.0.1:8234 HOST.`,
		Example: `  millwright dashboard
  millwright dashboard -n shop --port 8234
  millwright dashboard --context seed-eu-1 --ui-address https://temporal.example.com`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return d.run(c.Context(), c.OutOrStdout()) },
	}
	d.access.RegisterFlags(c)
	d.temporalFlags.RegisterFlags(c)
	flags := c.Flags()
	flags.StringVarP(&d.namespace, "namespace", "n", "", "namespace to show; default: all namespaces")
	flags.StringVar(&d.address, "address", "127.0.0.1", "loopback address to listen on")
	flags.Uint16Var(&d.port, "port", 0, "port to listen on; 0: any free port")
	flags.DurationVar(&d.interval, "interval", 2*time.Second, "least time between two changes of an open page")
	flags.BoolVar(&d.actsAsMCM, "as-mcm", false, "worker and bridge run with --as-mcm: minReadySeconds has no effect")
	d.temporalUI.RegisterFlag(c, kubecli.LocalTemporalUI)
	return c
}

// run serves the pages until ctx is done.
func (d *dashboardCommand) run(ctx context.Context, out io.Writer) error {
	if d.interval <= 0 {
		return fmt.Errorf("--interval %s is not positive", d.interval)
	}
	if address, err := netip.ParseAddr(d.address); err != nil || !address.IsLoopback() {
		return fmt.Errorf("--address %q is no loopback address: give 127.0.0.1 or ::1", d.address)
	}
	clients, err := d.NewClients(d.access)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s, err := d.newServer(ctx, clients)
	if err != nil {
		return err
	}
	if s.details.temporal != nil {
		defer s.details.temporal.Close()
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(d.address, strconv.Itoa(int(d.port))))
	if err != nil {
		return fmt.Errorf("listen on --port %d: %w", d.port, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.watcher.run(ctx)
	}()
	defer func() {
		stop()
		<-ended
	}()
	guarded := s.guarded(portOf(listener))
	_, _ = fmt.Fprintf(out, "http://%s/?token=%s\nStop it with Ctrl-C.\n", listener.Addr(), guarded.token)
	return serve(ctx, listener, guarded)
}

// newServer returns the server of the pages, without its guard.
func (d *dashboardCommand) newServer(ctx context.Context, clients kubecli.Clients) (*server, error) {
	ui, err := d.temporalUI.Pages(d.temporalFlags.Namespace)
	if err != nil {
		return nil, err
	}
	r, err := newRenderer()
	if err != nil {
		return nil, err
	}
	s := &server{
		watcher:  newWatcher(clients, d.namespace, d.access.ContextName(), d.Now),
		ui:       ui,
		renderer: r,
		interval: d.interval,
		stopped:  ctx,
		details: &details{
			clients: clients, temporalAddress: d.temporalFlags.Address, temporalSpace: d.temporalFlags.Namespace,
			ui: ui, actsAsMCM: d.actsAsMCM, now: d.Now, kept: map[string]keptDetail{},
		},
	}
	if s.details.temporal, err = d.DialTemporal(d.temporalFlags); err != nil {
		s.details.temporal, s.details.temporalNote = nil, kubecli.CollapseSpaces(err.Error())
	}
	return s, nil
}

// guarded returns the handler of the pages behind a guard with new secrets.
func (s *server) guarded(port string) guard {
	return guard{
		token: newSecret(), session: newSecret(), cookieName: cookieNameOfPort(port),
		policy: contentPolicy(s.renderer.script, s.renderer.style), next: s.handler(), refuse: s.refuse,
	}
}

func portOf(listener net.Listener) string {
	_, port, _ := net.SplitHostPort(listener.Addr().String()) // the address of a TCP listener always has a port
	return port
}

// shutdownTimeout is how long open requests may go on after Ctrl-C.
const shutdownTimeout = 2 * time.Second

// serve serves until ctx is done.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	web := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 64 << 10,
	}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve pages: %w", err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := web.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		return web.Close()
	}
	return nil
}
