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
	"millwright/process/problems"
)

// clients are the clients of the control cluster and the target cluster. One cluster may be both.
type clients struct {
	config   *rest.Config         // configuration for the control cluster
	machines versioned.Interface  // client for Machines, MachineSets and the other objects of machine.sapcloud.io
	control  kubernetes.Interface // client of the classes' Secrets and of Leases
	events   record.EventRecorder // recorder of events in the control cluster
	// client for the metadata of the control cluster's Secrets; nil if Millwright sets no finalizers on Secrets
	metadata metadata.Interface
	target   kubernetes.Interface // client of nodes and bootstrap tokens; nil without a target cluster
}

// userAgent is the worker's user agent in the logs of API servers.
const userAgent = "millwright-worker"

// newClients creates the clients. The restore detector checks the watches of the clients for a restore of the API
// server. newClients sends no request.
func newClients(o options, restores *cache.RestoreDetector) (c clients, err error) {
	control, err := o.ControlClusterConfig(userAgent)
	if err != nil {
		return c, err
	}
	control = restores.ConfigWithRestoreCheck(control)
	c.config = control
	if c.machines, err = versioned.NewForConfig(control); err != nil {
		return c, fmt.Errorf("make client: %w", err)
	}
	if c.control, err = process.NewKubernetesClient(control); err != nil {
		return c, err
	}
	c.events = newEventRecorder(c.control)
	if o.setsSecretFinalizers {
		if c.metadata, err = metadata.NewForConfig(control); err != nil {
			return c, fmt.Errorf("make client: %w", err)
		}
	}
	target, err := o.TargetClusterConfig(userAgent)
	if err != nil || target == nil {
		return c, err
	}
	c.target, err = newDrainClient(restores.ConfigWithRestoreCheck(target))
	return c, err
}

// newDrainClient returns a client for a cluster whose nodes are drained.
func newDrainClient(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return noRetryTransport{next} })
	return process.NewKubernetesClient(config)
}

// workloadAccess returns the access to the workload clusters of Cluster API. The clients of workload clusters have the
// same rate limit as the clients of the target cluster.
func (c clients) workloadAccess(o options) capidrain.ClusterAccess {
	return capidrain.ClusterAccess{
		SecretsClient: c.control,
		Connect: func(config *rest.Config, namespace, name string) (kubernetes.Interface, error) {
			config.UserAgent = userAgent
			o.LimitRequests(config)
			if err := o.ProblemRecorder.WrapConfig(config, problems.WorkloadClusterSystem(namespace, name)); err != nil {
				return nil, fmt.Errorf("watch the requests to the workload cluster: %w", err)
			}
			return newDrainClient(config)
		},
	}
}

// noRetryTransport lets the client return a refused eviction at once. It removes the header Retry-After, because the
// client would otherwise wait and retry up to ten times. The drain itself decides when to retry.
type noRetryTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (i noRetryTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := i.next.RoundTrip(request)
	if err == nil && strings.HasSuffix(request.URL.Path, "/eviction") {
		response.Header.Del("Retry-After") // the body of the response also contains the delay
	}
	return response, err
}
