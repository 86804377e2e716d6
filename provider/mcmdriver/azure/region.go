// Package azure serves a fake of Azure over HTTP, so that the cloud and MCM's released driver for Azure can run in
// different processes. The fake is part of the driver's release. A fake contains the virtual machines (VMs), network
// interfaces and disks of one resource group, which is one cluster; a Region contains several resource groups.
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

// sdkMethodHeader is the HTTP header with the method name of Azure's SDK, such as "VirtualMachinesClient.Get". The SDK
// stores the method name in the context of a request, and the SDK's fake servers read the method name from the context.
const sdkMethodHeader = "X-Api-Name"

// MethodCreateVM and MethodCreateNIC are the SDK's method names of the create requests for a VM and a network
// interface.
const (
	MethodCreateVM  = "VirtualMachinesClient.BeginCreateOrUpdate"
	MethodCreateNIC = "InterfacesClient.BeginCreateOrUpdate"
)

// Region is a fake Azure region at an HTTP address. A Region serves one request at a time, because the driver's fake
// does not lock all of its maps.
type Region struct {
	// InterceptRequest, if set, is called for each request in place of serve. InterceptRequest may call serve, which
	// executes the request and writes the answer.
	InterceptRequest func(w http.ResponseWriter, request Request, serve func(http.ResponseWriter))

	// OnVMChange, if set, is called after a VM is created or deleted, while the lock is held.
	OnVMChange func(name string, exists bool)

	mu             sync.Mutex
	resourceGroups []*resourceGroup
}

// Request is a request of the SDK.
type Request struct {
	Method   string // method of the SDK, such as MakeVM
	Resource string // name of the resource: the last segment of the path
}

// resourceGroup is a resource group.
type resourceGroup struct {
	name      string
	state     *fakes.ClusterState
	pipelines map[string]runtime.Pipeline // pipelines to the fake, by type name of the SDK's client
}

// NewSpec returns the providerSpec of a class for the cluster of a resource group.
func NewSpec(group, location string) api.AzureProviderSpec {
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
		clients, err := newFakePipelines(spec.ResourceGroup, state)
		if err != nil {
			return nil, err
		}
		r.resourceGroups = append(
			r.resourceGroups,
			&resourceGroup{name: spec.ResourceGroup, state: state, pipelines: clients},
		)
	}
	return r, nil
}

// newFakePipelines builds the fake's clients of one resource group.
func newFakePipelines(name string, state *fakes.ClusterState) (map[string]runtime.Pipeline, error) {
	f := fakes.NewFactory(name)
	clients, failed := map[string]runtime.Pipeline{}, []error{}
	add := func(client any, err error) {
		if failed = append(failed, err); err != nil {
			return
		}
		// The fake's server is not exported, so it can be reached only through the pipeline of the fake's client.
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
	// the body is read before serve, because the client may be killed during serve
	body, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	method := request.Header.Get(sdkMethodHeader)
	serve := func(w http.ResponseWriter) { r.forwardRequest(w, request, method, body) }
	if r.InterceptRequest == nil {
		serve(w)
		return
	}
	r.InterceptRequest(w, Request{Method: method, Resource: path.Base(request.URL.Path)}, serve)
}

func (r *Region) forwardRequest(w http.ResponseWriter, request *http.Request, method string, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.groupOfRequest(request.URL.Path, body)
	client, _, _ := strings.Cut(method, ".")
	pipeline, has := g.pipelines[client]
	if !has {
		http.Error(w, "no fake for "+method, http.StatusNotImplemented)
		return
	}
	before := g.vmNames()
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
	g.fixFakeRecords()
	r.notifyChanges(before, g.vmNames())
	maps.Copy(w.Header(), response.Header)
	w.WriteHeader(response.StatusCode)
	if response.Body != nil {
		_, _ = io.Copy(w, response.Body) // on an error, the client has closed the connection
		_ = response.Body.Close()
	}
}

// groupOfRequest returns the resource group in the path or the body of a request. For a request without a resource
// group, such as a request for an image, groupOfRequest returns the first group.
func (r *Region) groupOfRequest(path string, body []byte) *resourceGroup {
	for _, g := range r.resourceGroups {
		if strings.Contains(path+"/", "/"+g.name+"/") || bytes.Contains(body, []byte("'"+g.name+"'")) {
			return g
		}
	}
	return r.resourceGroups[0]
}

func (r *Region) notifyChanges(before, after []string) {
	if r.OnVMChange == nil {
		return
	}
	for _, name := range before {
		if !slices.Contains(after, name) {
			r.OnVMChange(name, false)
		}
	}
	for _, name := range after {
		if !slices.Contains(before, name) {
			r.OnVMChange(name, true)
		}
	}
}

// fixFakeRecords corrects two defects in the records of the fake. The record of a network interface that was created
// before its VM has no name, so the fake cannot delete the record. The fake also keeps records of machines that have no
// resources.
func (g *resourceGroup) fixFakeRecords() {
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

func (g *resourceGroup) vmNames() []string {
	var names []string
	for name, resources := range g.state.MachineResourcesMap {
		if resources.VM != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// VMNames returns the names of the VMs of all resource groups.
func (r *Region) VMNames() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, g := range r.resourceGroups {
		names = append(names, g.vmNames()...)
	}
	return names
}

// MachinesWithResources returns the sorted names of the machines that have a VM, a network interface or a disk.
func (r *Region) MachinesWithResources() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, g := range r.resourceGroups {
		for name := range g.state.MachineResourcesMap {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// CreateVMByHand creates a VM with network interface and disks in the first resource group.
func (r *Region) CreateVMByHand(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.resourceGroups[0]
	g.state.AddMachineResources(fakes.NewMachineResourcesBuilder(g.state.ProviderSpec, name).BuildAllResources())
}
