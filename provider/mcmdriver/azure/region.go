// Package azure serves a fake of Azure over HTTP, so that MCM's released driver for Azure can run in another process
// than the cloud. The fake is part of the driver's release. It has the virtual machines (VM), network interfaces and
// disks of one resource group, which is one cluster; a Region has several resource groups.
package azure

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/api"
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/testhelp"
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/testhelp/fakes"
)

// apiHeader carries the name of the method of Azure's SDK, such as "VirtualMachinesClient.Get". The SDK puts this name
// into the context of a request, where the SDK's fake servers read it.
const apiHeader = "X-Api-Name"

// MakeVM and MakeNIC are the names of the create requests.
const (
	MakeVM  = "VirtualMachinesClient.BeginCreateOrUpdate"
	MakeNIC = "InterfacesClient.BeginCreateOrUpdate"
)

// Region is Azure at an HTTP address. It serves one request at a time, because MCM's fake does not lock all of its
// maps.
type Region struct {
	// Answer, if set, is called for each request in place of serve, which carries the request out and answers it.
	Answer func(w http.ResponseWriter, request Request, serve func(http.ResponseWriter))

	// Changed, if set, is called with the lock held when a VM has been created or deleted.
	Changed func(name string, exists bool)

	mu     sync.Mutex
	groups []*group
}

// Request is a request of the SDK.
type Request struct {
	Method   string // method of the SDK, such as MakeVM
	Resource string // name of the resource: the last part of the path
}

// group is a resource group.
type group struct {
	name    string
	state   *fakes.ClusterState
	clients map[string]runtime.Pipeline // pipelines to the fake, by the name of the SDK's client
}

// Spec returns the providerSpec of a class whose cluster is a resource group.
func Spec(group, location string) api.AzureProviderSpec {
	spec := testhelp.NewProviderSpecBuilder(group, group, "pool").WithDefaultValues().Build()
	spec.Location = location
	return spec
}

// NewRegion returns a region with an empty resource group for each spec.
func NewRegion(specs ...api.AzureProviderSpec) (*Region, error) {
	r := &Region{}
	for _, spec := range specs {
		state := fakes.NewClusterState(spec).
			WithDefaultVMImageSpec().
			WithAgreementTerms(true).
			WithSubnet(spec.ResourceGroup, spec.SubnetInfo.SubnetName, spec.SubnetInfo.VnetName)
		clients, err := clientsOf(spec.ResourceGroup, state)
		if err != nil {
			return nil, err
		}
		r.groups = append(r.groups, &group{name: spec.ResourceGroup, state: state, clients: clients})
	}
	return r, nil
}

// clientsOf builds the fake's clients of one resource group.
func clientsOf(name string, state *fakes.ClusterState) (map[string]runtime.Pipeline, error) {
	f := fakes.NewFactory(name)
	clients, failed := map[string]runtime.Pipeline{}, []error{}
	add := func(client any, err error) {
		if failed = append(failed, err); err != nil {
			return
		}
		// the fake's server is not exported: only the pipeline of its client reaches it
		v := reflect.ValueOf(client).Elem()
		clients[v.Type().Name()] = (*arm.Client)(v.FieldByName("internal").UnsafePointer()).Pipeline()
	}
	vms, err := f.NewVirtualMachineAccessBuilder().WithClusterState(state).Build()
	add(vms, err)
	nics, err := f.NewNICAccessBuilder().WithClusterState(state).Build()
	add(nics, err)
	disks, err := f.NewDiskAccessBuilder().WithClusterState(state).Build()
	add(disks, err)
	groups, err := f.NewResourceGroupsAccessBuilder().Build()
	add(groups, err)
	subnets, err := f.NewSubnetAccessBuilder().WithClusterState(state).Build()
	add(subnets, err)
	images, err := f.NewImageAccessBuilder().WithClusterState(state).Build()
	add(images, err)
	terms, err := f.NewMarketPlaceAgreementAccessBuilder().WithClusterState(state).Build()
	add(terms, err)
	graph, err := f.NewResourceGraphAccessBuilder().WithClusterState(state).Build()
	add(graph, err)
	return clients, errors.Join(failed...)
}

// ServeHTTP answers a request of the SDK.
func (r *Region) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body) // now, because the sender may be dead when serve needs it
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	method := request.Header.Get(apiHeader)
	serve := func(w http.ResponseWriter) { r.serve(w, request, method, body) }
	if r.Answer == nil {
		serve(w)
		return
	}
	r.Answer(w, Request{Method: method, Resource: path.Base(request.URL.Path)}, serve)
}

func (r *Region) serve(w http.ResponseWriter, request *http.Request, method string, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.of(request.URL.Path, body)
	client, _, _ := strings.Cut(method, ".")
	pipeline, has := g.clients[client]
	if !has {
		http.Error(w, "no fake for "+method, http.StatusNotImplemented)
		return
	}
	before := g.vms()
	ctx := context.WithValue(context.WithoutCancel(request.Context()), runtime.CtxAPINameKey{}, method)
	sent, err := runtime.NewRequest(ctx, request.Method, "https://management.azure.com"+request.URL.RequestURI())
	if err == nil && len(body) > 0 {
		err = sent.SetBody(streaming.NopCloser(bytes.NewReader(body)), request.Header.Get("Content-Type"))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	response, err := pipeline.Do(sent)
	if refusal, is := errors.AsType[*azcore.ResponseError](err); is {
		response, err = refusal.RawResponse, nil
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	g.tidy()
	r.tell(before, g.vms())
	maps.Copy(w.Header(), response.Header)
	w.WriteHeader(response.StatusCode)
	if response.Body != nil {
		_, _ = io.Copy(w, response.Body) // to a client that may be gone
		_ = response.Body.Close()
	}
}

// of returns the resource group that a request names. It returns the first group for a request that names none, such as
// one for an image.
func (r *Region) of(path string, body []byte) *group {
	for _, g := range r.groups {
		if strings.Contains(path+"/", "/"+g.name+"/") || bytes.Contains(body, []byte("'"+g.name+"'")) {
			return g
		}
	}
	return r.groups[0]
}

func (r *Region) tell(before, after []string) {
	if r.Changed == nil {
		return
	}
	for _, name := range before {
		if !slices.Contains(after, name) {
			r.Changed(name, false)
		}
	}
	for _, name := range after {
		if !slices.Contains(before, name) {
			r.Changed(name, true)
		}
	}
}

// tidy corrects the records of the fake. The fake gives no name to the record of a network interface that is made
// before its VM, and so cannot delete it later. It also keeps records that have no resources any more.
func (g *group) tidy() {
	all := g.state.MachineResourcesMap
	delete(all, "")
	for name, resources := range all {
		if resources.Name = name; resources.HasResources() {
			all[name] = resources
		} else {
			delete(all, name)
		}
	}
}

func (g *group) vms() []string {
	var names []string
	for name, resources := range g.state.MachineResourcesMap {
		if resources.VM != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// VMs returns the names of all VMs, in order.
func (r *Region) VMs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, g := range r.groups {
		names = append(names, g.vms()...)
	}
	return names
}

// Resources returns the names of the machines that have a VM, a network interface or a disk.
func (r *Region) Resources() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, g := range r.groups {
		for name := range g.state.MachineResourcesMap {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// CreateByHand makes a VM, with its network interface and disks, in the first resource group.
func (r *Region) CreateByHand(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.groups[0]
	g.state.AddMachineResources(fakes.NewMachineResourcesBuilder(g.state.ProviderSpec, name).BuildAllResources())
}
