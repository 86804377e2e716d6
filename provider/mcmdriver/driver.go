// Package mcmdriver serves an unchanged driver of machine-controller-manager (MCM) as a Provider, in a worker of the
// provider's task queue. Package mcmdriver builds MCM's objects from a class and a machine, calls the driver like MCM's
// controller, and maps the driver's codes to codes of package provider. docs/provider.md describes the guarantees of
// MCM's drivers.
package mcmdriver

import (
	"cmp"
	"context"
	"time"

	mcm "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	corev1 "k8s.io/api/core/v1"

	"millwright/provider"
	"millwright/provider/driver"
)

const (
	// defaultConsistencyWindow is the consistency window of a cloud if WithConsistencyWindow is not used. None of the
	// clouds with an MCM driver documents how long its reads may be stale. EC2 recommends that a client repeats a read
	// after a couple of seconds, for up to five minutes. MCM itself repeats a read after 5 s (ShortRetry), so Millwright
	// waits at least as long as MCM before a decision.
	defaultConsistencyWindow = 5 * time.Second

	// searchInterval is the time between two searches for an earlier creation. The value is MCM's ShortRetry:
	// Millwright does not read from a cloud more often than MCM.
	searchInterval = 5 * time.Second
)

// settings are the values that Options change.
type settings struct {
	consistencyWindow time.Duration
	driverOptions     []driver.Option
}

// Option changes the settings of New.
type Option func(*settings)

// WithConsistencyWindow sets the consistency window of the driver's cloud: the time after a create request in which
// reads may not show the instance. The default is 5 s. After an interrupted creation, the next creation or deletion
// waits for the duration of the window. If the cloud shows the instance even later, the next creation may make a second
// instance.
func WithConsistencyWindow(window time.Duration) Option {
	return func(s *settings) { s.consistencyWindow = window }
}

// WithDriverOptions passes options on to package driver.
func WithDriverOptions(options ...driver.Option) Option {
	return func(s *settings) { s.driverOptions = append(s.driverOptions, options...) }
}

// New returns a Provider that calls a driver of MCM. The Provider is safe for concurrent use, because MCM requires
// drivers that are safe for concurrent use.
func New(d mcm.Driver, options ...Option) *driver.Provider {
	s := settings{
		consistencyWindow: defaultConsistencyWindow,
		driverOptions:     []driver.Option{driver.WithSearchInterval(searchInterval)},
	}
	for _, option := range options {
		option(&s)
	}
	return driver.New(&mcmAdapter{mcmDriver: d, consistencyWindow: s.consistencyWindow}, s.driverOptions...)
}

// mcmAdapter is a driver.Driver that calls a driver of MCM.
type mcmAdapter struct {
	mcmDriver         mcm.Driver
	consistencyWindow time.Duration
	creations         runningCreations
}

var (
	_ driver.Driver         = (*mcmAdapter)(nil)
	_ driver.Initializer    = (*mcmAdapter)(nil)
	_ driver.VolumeIDReader = (*mcmAdapter)(nil)
)

// Traits implements driver.Driver. MCM's drivers tag instances with the machine's name, and send no client token.
func (s *mcmAdapter) Traits(context.Context, provider.Class) (provider.Traits, error) {
	return provider.Traits{Idempotency: provider.NotIdempotent, Named: true, Window: s.consistencyWindow}, nil
}

// Find implements driver.Driver. A driver of MCM cannot search by UID, so Find returns no instance for a machine that
// has neither a name nor a provider ID.
func (s *mcmAdapter) Find(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (driver.SearchResult, error) {
	if machine.Name == "" && machine.ProviderID == "" {
		return driver.SearchResult{}, nil
	}
	instances, err := s.findInstanceByStatus(ctx, class, machine)
	if err == nil && len(instances) == 0 && s.creations.isRunning(machine) {
		err = provider.Errorf(
			provider.Aborted,
			"an earlier create call of the driver for machine %s has not ended yet",
			machine.Name,
		)
	}
	return driver.SearchResult{Instances: instances}, err
}

// findInstanceByStatus finds the machine's instance by the driver's GetMachineStatus. If the driver does not implement
// GetMachineStatus, or finds several instances, findInstanceByStatus uses ListMachines.
func (s *mcmAdapter) findInstanceByStatus(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) ([]provider.Instance, error) {
	answer, refusal := callDriver(ctx, class, s.mcmDriver.GetMachineStatus, &mcm.GetMachineStatusRequest{
		Machine: newMCMMachine(class, machine), MachineClass: newMCMClass(class), Secret: newMCMSecret(class),
	})
	one := func(state provider.State) []provider.Instance {
		return []provider.Instance{
			{
				ProviderID:     answer.ProviderID,
				NodeName:       answer.NodeName,
				MachineName:    machine.Name,
				Addresses:      toProviderAddresses(answer.Addresses),
				State:          state,
				LastKnownState: machine.LastKnownState,
			},
		}
	}
	switch code := codeOfDriverError(refusal); {
	case code == provider.OK && answer != nil:
		return one(""), nil
	case code == provider.OK:
		return nil, provider.Errorf(provider.Internal, "the driver answered without a status of machine %s", machine.Name)
	case code == provider.NotFound:
		return nil, nil
	case code == provider.NotInitialized && answer != nil && answer.ProviderID != "":
		return one(provider.Uninitialized), nil
	case code == provider.Unimplemented || code == provider.OutOfRange:
		return s.findInstancesInList(ctx, class, machine, refusal)
	}
	return nil, refusal.toErrorWithRetryAfter(creationRetryDelay)
}

// findInstancesInList returns the listed instances with the machine's name or provider ID. The parameter status is the
// error of GetMachineStatus. findInstancesInList returns this error if the driver has no ListMachines, or if
// GetMachineStatus has found several instances and the list shows none. A list contains no node names. Drivers without
// GetMachineStatus use the machine's name as the node name.
func (s *mcmAdapter) findInstancesInList(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	status *driverError,
) ([]provider.Instance, error) {
	listed, refusal := s.listInstances(ctx, class)
	switch {
	case codeOfDriverError(refusal) == provider.Unimplemented:
		return nil, status.toErrorWithRetryAfter(creationRetryDelay)
	case refusal != nil:
		return nil, refusal.toErrorWithRetryAfter(creationRetryDelay)
	}
	var found []provider.Instance
	for _, i := range listed {
		if i.MachineName == machine.Name || i.ProviderID == machine.ProviderID {
			i.NodeName, i.LastKnownState = i.MachineName, machine.LastKnownState
			found = append(found, i)
		}
	}
	if len(found) == 0 && codeOfDriverError(status) == provider.OutOfRange {
		return nil, status.toErrorWithRetryAfter(creationRetryDelay)
	}
	return found, nil
}

// Create implements driver.Driver. Like MCM, Create also initializes the new instance. If the initialize step fails,
// Create returns the instance with state Uninitialized, and the caller initializes the instance later. If the driver
// has no initialize step, the state is empty.
//
// A driver that ignores a cancellation still makes the instance. So Create ignores a cancellation of its context:
// Create returns when the driver returns, or at the deadline of the context. Before the deadline of Create's context,
// no other worker starts a creation for the machine.
func (s *mcmAdapter) Create(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	_ driver.CreateRequest,
) (provider.Instance, error) {
	end := s.creations.beginCall(machine)
	create := func(ctx context.Context, request *mcm.CreateMachineRequest) (*mcm.CreateMachineResponse, error) {
		defer end() // end is called when the driver's call ends, even if Create has already returned
		return s.mcmDriver.CreateMachine(ctx, request)
	}
	until, release := contextUntilDeadline(ctx)
	defer release()
	answer, refusal := callDriverWithWaitContext(ctx, until, class, create, &mcm.CreateMachineRequest{
		Machine: newMCMMachine(class, machine), MachineClass: newMCMClass(class), Secret: newMCMSecret(class),
	})
	if answer == nil {
		answer = &mcm.CreateMachineResponse{}
	}
	made := provider.Instance{
		ProviderID:     answer.ProviderID,
		NodeName:       answer.NodeName,
		MachineName:    machine.Name,
		Addresses:      toProviderAddresses(answer.Addresses),
		LastKnownState: answer.LastKnownState,
	}
	if refusal != nil {
		return made, refusal.toErrorWithRetryAfter(creationRetryDelay)
	}
	machine.LastKnownState = cmp.Or(made.LastKnownState, machine.LastKnownState)
	switch initialized, err := s.Initialize(ctx, class, machine, made); provider.CodeOfError(err) {
	case provider.OK:
		return initialized, nil
	case provider.Unimplemented:
	default:
		made.State = provider.Uninitialized
	}
	return made, nil
}

// Initialize implements driver.Initializer.
func (s *mcmAdapter) Initialize(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	instance provider.Instance,
) (provider.Instance, error) {
	machine.ProviderID = instance.ProviderID
	answer, refusal := callDriver(ctx, class, s.mcmDriver.InitializeMachine, &mcm.InitializeMachineRequest{
		Machine: newMCMMachine(class, machine), MachineClass: newMCMClass(class), Secret: newMCMSecret(class),
	})
	if refusal != nil {
		return provider.Instance{}, refusal.toErrorWithRetryAfter(creationRetryDelay)
	}
	instance.State = ""
	if answer != nil {
		instance.ProviderID = cmp.Or(answer.ProviderID, instance.ProviderID)
		instance.NodeName = cmp.Or(answer.NodeName, instance.NodeName)
		instance.Addresses = append(instance.Addresses, toProviderAddresses(answer.Addresses)...)
	}
	return instance, nil
}

// Delete implements driver.Driver. An MCM driver needs a valid class.Spec for a deletion, which other Drivers do not
// need. Delete discards the LastKnownState that the driver returns.
func (s *mcmAdapter) Delete(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	instance provider.Instance,
) error {
	machine.ProviderID, machine.Name = instance.ProviderID, cmp.Or(machine.Name, instance.MachineName)
	_, refusal := callDriver(ctx, class, s.mcmDriver.DeleteMachine, &mcm.DeleteMachineRequest{
		Machine: newMCMMachine(class, machine), MachineClass: newMCMClass(class), Secret: newMCMSecret(class),
	})
	if refusal != nil {
		return refusal.toErrorWithRetryAfter(deletionRetryDelay)
	}
	return nil
}

// List implements driver.Driver. In MCM, the class contains the name of the cluster: a driver lists all instances of
// this cluster, including instances of other classes.
func (s *mcmAdapter) List(ctx context.Context, class provider.Class, _ string) ([]provider.Instance, error) {
	listed, refusal := s.listInstances(ctx, class)
	if refusal != nil {
		return nil, refusal.toErrorWithRetryAfter(0)
	}
	return listed, nil
}

func (s *mcmAdapter) listInstances(ctx context.Context, class provider.Class) ([]provider.Instance, *driverError) {
	answer, refusal := callDriver(
		ctx,
		class,
		s.mcmDriver.ListMachines,
		&mcm.ListMachinesRequest{MachineClass: newMCMClass(class), Secret: newMCMSecret(class)},
	)
	if refusal != nil || answer == nil {
		return nil, refusal
	}
	instances := make([]provider.Instance, 0, len(answer.MachineList))
	for id, name := range answer.MachineList {
		instances = append(instances, provider.Instance{ProviderID: id, MachineName: name})
	}
	return instances, nil
}

// VolumeIDs implements driver.VolumeIDReader. VolumeIDs omits volumes without a CSI driver, because their cloud is
// unknown.
func (s *mcmAdapter) VolumeIDs(ctx context.Context, volumes []provider.Volume) ([]string, error) {
	request := &mcm.GetVolumeIDsRequest{}
	for _, v := range volumes {
		if v.CSIDriver == "" {
			continue
		}
		request.PVSpecs = append(
			request.PVSpecs,
			&corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: v.CSIDriver, VolumeHandle: v.Handle},
			}},
		)
	}
	answer, refusal := callDriver(ctx, provider.Class{}, s.mcmDriver.GetVolumeIDs, request)
	switch {
	case codeOfDriverError(refusal) == provider.Unimplemented || refusal == nil && answer == nil:
		return nil, nil
	case refusal != nil:
		return nil, refusal.toErrorWithRetryAfter(0)
	}
	return answer.VolumeIDs, nil
}

func toProviderAddresses(addresses []corev1.NodeAddress) []provider.Address {
	var converted []provider.Address
	for _, a := range addresses {
		converted = append(converted, provider.Address{Type: string(a.Type), Address: a.Address})
	}
	return converted
}
