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

// The interval and the timeout of readiness probes.
const (
	ProbeInterval = 50 * time.Millisecond // time between two probes
	probeTimeout  = 2 * time.Second       // timeout of one probe
)

// ProbeComponent checks once whether a component is ready, and returns nil if the component is ready.
func (p Plan) ProbeComponent(ctx context.Context, name string) error {
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
		return checkHealth(ctx, p.VirtualCloudURL()+"/healthz")
	case MCMManager, MCMMachineController:
		return checkHealth(ctx, "http://"+Address(p.Ports[name])+"/healthz")
	}
	path := "/readyz" // readiness path of worker, bridge and Cluster API's programs
	if e, isExtra := p.findExtraComponent(name); isExtra {
		path = e.ReadinessPath
	}
	return checkHealth(ctx, "http://"+Address(p.Ports[name])+path)
}

// LoopbackHTTPClient does not verify certificates, because it only connects to components of the stack on loopback
// addresses, and sends no secret over TLS.
var LoopbackHTTPClient = &http.Client{Transport: &http.Transport{
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
	// no connection is reused after a restart of the component
	DisableKeepAlives: true,
}}

// checkHealth returns nil if the URL answers 200.
func checkHealth(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	response, err := LoopbackHTTPClient.Do(request)
	if err != nil {
		return err // Do's error already contains the URL
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
		return fmt.Errorf("ask %s: %s: %s", url, response.Status, text)
	}
	return nil
}

// Clientset returns a client of the API server with the admin's identity.
func (p Plan) Clientset() (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.StackFolder().KubeconfigFile(AdminIdentity))
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1 // no client-side rate limit
	return kubernetes.NewForConfig(config)
}

func (p Plan) probeAPIServer(ctx context.Context) error {
	clients, err := p.Clientset()
	if err != nil {
		return err // for example, the API server has not written its certificate yet
	}
	return clients.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// probeControllerManager also checks that the default ServiceAccount of the default namespace exists. /healthz succeeds
// before the controllers run, and no pod can be created without the ServiceAccount.
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

// probeTemporal checks the frontend and the UI. probeTemporal first opens a TCP connection to the port, because a gRPC
// client waits a second after a failed first connection.
func (p Plan) probeTemporal(ctx context.Context) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", Address(p.Ports[Temporal]))
	if err != nil {
		return err
	}
	_ = connection.Close()
	options, err := p.TemporalClientOptions()
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
	return checkHealth(ctx, p.TemporalUIURL()+"/healthz")
}
