// Package mcmtest has the common parts of the tests of MCM's drivers: a driver whose methods fail and hang on demand,
// and the parts of the conformance harness that are the same for all of these drivers.
package mcmtest

import (
	"context"
	"sync"

	mcm "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
)

// Driver is a driver of MCM whose methods may fail or hang before they do anything. Methods are named as in MCM, such
// as "CreateMachine".
type Driver struct {
	mcm.Driver

	mu    sync.Mutex
	fails map[string]error
	hangs map[string]<-chan struct{}
}

// New returns a Driver that calls d. No method fails or hangs yet.
func New(d mcm.Driver) *Driver {
	return &Driver{Driver: d, fails: map[string]error{}, hangs: map[string]<-chan struct{}{}}
}

// Fail makes the next call of a method end with an error.
func (d *Driver) Fail(method string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails[method] = err
}

// Hang makes each call of a method wait until a channel is closed, also after the end of its context.
func (d *Driver) Hang(method string, until <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hangs[method] = until
}

// enter begins a method: it hangs or fails if Hang or Fail were called for the method.
func (d *Driver) enter(method string) error {
	d.mu.Lock()
	err, hang := d.fails[method], d.hangs[method]
	delete(d.fails, method)
	d.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return err
}

func call[Q, A any](
	ctx context.Context,
	d *Driver,
	method string,
	do func(context.Context, *Q) (*A, error),
	request *Q,
) (*A, error) {
	if err := d.enter(method); err != nil {
		return nil, err
	}
	return do(ctx, request)
}

// CreateMachine implements MCM's Driver.
func (d *Driver) CreateMachine(ctx context.Context, r *mcm.CreateMachineRequest) (*mcm.CreateMachineResponse, error) {
	return call(ctx, d, "CreateMachine", d.Driver.CreateMachine, r)
}

// InitializeMachine implements MCM's Driver.
func (d *Driver) InitializeMachine(
	ctx context.Context,
	r *mcm.InitializeMachineRequest,
) (*mcm.InitializeMachineResponse, error) {
	return call(ctx, d, "InitializeMachine", d.Driver.InitializeMachine, r)
}

// DeleteMachine implements MCM's Driver.
func (d *Driver) DeleteMachine(ctx context.Context, r *mcm.DeleteMachineRequest) (*mcm.DeleteMachineResponse, error) {
	return call(ctx, d, "DeleteMachine", d.Driver.DeleteMachine, r)
}

// GetMachineStatus implements MCM's Driver.
func (d *Driver) GetMachineStatus(
	ctx context.Context,
	r *mcm.GetMachineStatusRequest,
) (*mcm.GetMachineStatusResponse, error) {
	return call(ctx, d, "GetMachineStatus", d.Driver.GetMachineStatus, r)
}

// ListMachines implements MCM's Driver.
func (d *Driver) ListMachines(ctx context.Context, r *mcm.ListMachinesRequest) (*mcm.ListMachinesResponse, error) {
	return call(ctx, d, "ListMachines", d.Driver.ListMachines, r)
}
