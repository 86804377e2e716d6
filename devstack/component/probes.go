package component

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"go.temporal.io/sdk/client"
	temporallog "go.temporal.io/sdk/log"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// The times of readiness probes.
const (
	ProbeEvery   = 50 * time.Millisecond // time between two probes
	probeTimeout = 2 * time.Second       // maximum time of one probe
)

// Probe checks once whether a component is ready, and returns nil if it is.
func (p Plan) Probe(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	switch name {
	case Etcd:
		return checkHealth(ctx, p.etcdURL()+"/health")
	case APIServer:
		return p.probeAPIServer(ctx)
	case ControllerManager:
		return p.probeControllerManager(ctx)
	case Scheduler:
		return checkHealth(ctx, "https://"+Address(p.Ports[Scheduler])+"/healthz")
	case Kwok:
		return checkHealth(ctx, "http://"+Address(p.Ports[Kwok])+"/healthz")
	case Temporal:
		return p.probeTemporal(ctx)
	case VirtualCloud:
		return checkHealth(ctx, p.Cloud()+"/healthz")
	case MCMManager, MCMMachines:
		return checkHealth(ctx, "http://"+Address(p.Ports[name])+"/healthz")
	}
	path := "/readyz" // path of the readiness check of worker and bridge
	if e, isExtra := p.extraNamed(name); isExtra {
		path = e.Ready
	}
	return checkHealth(ctx, "http://"+Address(p.Ports[name])+path)
}

// LoopbackClient verifies no certificates, because it connects only to components of the stack on loopback addresses,
// and sends no secret.
var LoopbackClient = &http.Client{Transport: &http.Transport{
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
	DisableKeepAlives: true,                                  // a restarted component has no old connections
}}

// checkHealth checks a health endpoint.
func checkHealth(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	response, err := LoopbackClient.Do(request)
	if err != nil {
		return err // the error contains the URL
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
		return fmt.Errorf("ask %s: %s: %s", url, response.Status, text)
	}
	return nil
}

// Clientset returns a client of the API server as the admin.
func (p Plan) Clientset() (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.Layout().Kubeconfig(Admin))
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1 // no limit
	return kubernetes.NewForConfig(config)
}

func (p Plan) probeAPIServer(ctx context.Context) error {
	clients, err := p.Clientset()
	if err != nil {
		return err // the API server has not written its certificate yet
	}
	return clients.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// probeControllerManager also checks for a result of the controllers, the ServiceAccount of a namespace: /healthz
// succeeds before the controllers run, and no pod can be created without the ServiceAccount.
func (p Plan) probeControllerManager(ctx context.Context) error {
	if err := checkHealth(ctx, "https://"+Address(p.Ports[ControllerManager])+"/healthz"); err != nil {
		return err
	}
	clients, err := p.Clientset()
	if err != nil {
		return err
	}
	_, err = clients.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err
}

// probeTemporal checks the frontend and the UI. It connects to the port first: a gRPC client whose first connection
// fails would wait a second before it retries.
func (p Plan) probeTemporal(ctx context.Context) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", Address(p.Ports[Temporal]))
	if err != nil {
		return err
	}
	_ = connection.Close()
	options, err := p.TemporalOptions()
	if err != nil {
		return err
	}
	options.Logger = temporallog.NewStructuredLogger(slog.New(slog.DiscardHandler))
	clients, err := client.NewLazyClient(options)
	if err != nil {
		return fmt.Errorf("connect to Temporal: %w", err)
	}
	defer clients.Close()
	if _, err := clients.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		return fmt.Errorf("ask Temporal for its health: %w", err)
	}
	return checkHealth(ctx, p.TemporalUI()+"/healthz")
}
