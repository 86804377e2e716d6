// Package mcmtest contains the common parts of the tests with MCM drivers: a driver that tests can make fail or hang,
// and the common part of the conformance harness.
package mcmtest

import (
	"context"
	"sync"

	mcm "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
)

// Driver wraps an MCM driver. Driver can make a method fail or hang before the wrapped driver is called. Methods have
// their MCM names, such as "CreateMachine".
type Driver struct {
	mcm.Driver

	mu               sync.Mutex
	errorsByMethod   map[string]error
	releasesByMethod map[string]<-chan struct{}
}

// New returns a Driver that wraps d, without failures and hangs.
func New(d mcm.Driver) *Driver {
	return &Driver{Driver: d, errorsByMethod: map[string]error{}, releasesByMethod: map[string]<-chan struct{}{}}
}

// FailNextCall makes the next call of a method return an error.
func (d *Driver) FailNextCall(method string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.errorsByMethod[method] = err
}

// BlockCalls makes all calls of a method wait until the channel until is closed, even after the context of the call is
// done.
func (d *Driver) BlockCalls(method string, until <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.releasesByMethod[method] = until
}

// failOrBlock hangs or fails if BlockCalls or FailNextCall was called for the method. Every method calls failOrBlock
// first.
func (d *Driver) failOrBlock(method string) error {
	d.mu.Lock()
	err, hang := d.errorsByMethod[method], d.releasesByMethod[method]
	delete(d.errorsByMethod, method)
	d.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return err
}

func callMethod[Q, A any](
	ctx context.Context,
	d *Driver,
	method string,
	do func(context.Context, *Q) (*A, error),
	request *Q,
) (*A, error) {
	if err := d.failOrBlock(method); err != nil {
		return nil, err
	}
	return do(ctx, request)
}

// CreateMachine implements MCM's Driver.
func (d *Driver) CreateMachine(ctx context.Context, r *mcm.CreateMachineRequest) (*mcm.CreateMachineResponse, error) {
	return callMethod(ctx, d, "CreateMachine", d.Driver.CreateMachine, r)
}

// InitializeMachine implements MCM's Driver.
func (d *Driver) InitializeMachine(
	ctx context.Context,
	r *mcm.InitializeMachineRequest,
) (*mcm.InitializeMachineResponse, error) {
	return callMethod(ctx, d, "InitializeMachine", d.Driver.InitializeMachine, r)
}

// DeleteMachine implements MCM's Driver.
func (d *Driver) DeleteMachine(ctx context.Context, r *mcm.DeleteMachineRequest) (*mcm.DeleteMachineResponse, error) {
	return callMethod(ctx, d, "DeleteMachine", d.Driver.DeleteMachine, r)
}

// GetMachineStatus implements MCM's Driver.
func (d *Driver) GetMachineStatus(
	ctx context.Context,
	r *mcm.GetMachineStatusRequest,
) (*mcm.GetMachineStatusResponse, error) {
	return callMethod(ctx, d, "GetMachineStatus", d.Driver.GetMachineStatus, r)
}

// ListMachines implements MCM's Driver.
func (d *Driver) ListMachines(ctx context.Context, r *mcm.ListMachinesRequest) (*mcm.ListMachinesResponse, error) {
	return callMethod(ctx, d, "ListMachines", d.Driver.ListMachines, r)
}
