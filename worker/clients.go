package main

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"millwright/api/generated/clientset/versioned"
	"millwright/observe/cache"
	capidrain "millwright/observe/capi/drain"
	"millwright/process"
)

// clients are those of the control cluster and the target cluster, which may be the same.
type clients struct {
	config   *rest.Config         // of the control cluster
	machines versioned.Interface  // machine objects
	control  kubernetes.Interface // Secrets of classes, Leases
	events   record.EventRecorder // of the control cluster
	metadata metadata.Interface   // of the control cluster's Secrets; nil if they get no finalizers
	target   kubernetes.Interface // nodes, bootstrap tokens; nil without a target cluster
}

// agent is the worker's user agent, as the logs of API servers show it.
const agent = "millwright-worker"

// connect makes the clients, whose watches notice restores. It sends no request yet.
func connect(o options, restores *cache.Restores) (c clients, err error) {
	control, err := o.Kubernetes(agent)
	if err != nil {
		return c, err
	}
	control = restores.Watched(control)
	c.config = control
	if c.machines, err = versioned.NewForConfig(control); err != nil {
		return c, fmt.Errorf("make client: %w", err)
	}
	if c.control, err = process.KubernetesClient(control); err != nil {
		return c, err
	}
	c.events = recorder(c.control)
	if o.guardSecrets {
		if c.metadata, err = metadata.NewForConfig(control); err != nil {
			return c, fmt.Errorf("make client: %w", err)
		}
	}
	target, err := o.Target(agent)
	if err != nil || target == nil {
		return c, err
	}
	c.target, err = drainingClient(restores.Watched(target))
	return c, err
}

// drainingClient returns the client of a cluster whose nodes are drained.
func drainingClient(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return impatient{next} })
	return process.KubernetesClient(config)
}

// workloads says how the nodes of workload clusters of Cluster API are reached. Their clients have the same rate limit as
// those of the target cluster.
func (c clients) workloads(o options) capidrain.Access {
	return capidrain.Access{Secrets: c.control, Connect: func(config *rest.Config) (kubernetes.Interface, error) {
		config = rest.CopyConfig(config)
		config.UserAgent = agent
		o.Limit(config)
		return drainingClient(config)
	}}
}

// impatient returns the refusal of an eviction at once. Otherwise the client would wait and retry up to ten times,
// while the drain knows better when a budget allows the eviction.
type impatient struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (i impatient) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := i.next.RoundTrip(request)
	if err == nil && strings.HasSuffix(request.URL.Path, "/eviction") {
		response.Header.Del("Retry-After") // the body has it, too
	}
	return response, err
}
