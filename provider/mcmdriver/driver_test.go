package mcmdriver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	mcm "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"millwright/provider"
	"millwright/provider/driver"
	"millwright/provider/mcmdriver"
	"millwright/provider/mcmdriver/internal/ec2test"
	"millwright/provider/mcmdriver/internal/mcmtest"
)

// scriptedDriver is a driver of MCM with functions of a test as methods. A method without a function returns
// Unimplemented.
type scriptedDriver struct {
	createMachine     func(context.Context, *mcm.CreateMachineRequest) (*mcm.CreateMachineResponse, error)
	initializeMachine func(*mcm.InitializeMachineRequest) (*mcm.InitializeMachineResponse, error)
	deleteMachine     func(*mcm.DeleteMachineRequest) (*mcm.DeleteMachineResponse, error)
	getMachineStatus  func(*mcm.GetMachineStatusRequest) (*mcm.GetMachineStatusResponse, error)
	listMachines      func() (*mcm.ListMachinesResponse, error)
}

var errUnimplemented = status.Error(codes.Unimplemented, "not implemented")

func (s *scriptedDriver) CreateMachine(
	ctx context.Context,
	r *mcm.CreateMachineRequest,
) (*mcm.CreateMachineResponse, error) {
	return s.createMachine(ctx, r)
}

func (s *scriptedDriver) InitializeMachine(
	_ context.Context,
	r *mcm.InitializeMachineRequest,
) (*mcm.InitializeMachineResponse, error) {
	if s.initializeMachine == nil {
		return nil, errUnimplemented
	}
	return s.initializeMachine(r)
}

func (s *scriptedDriver) DeleteMachine(
	_ context.Context,
	r *mcm.DeleteMachineRequest,
) (*mcm.DeleteMachineResponse, error) {
	return s.deleteMachine(r)
}

func (s *scriptedDriver) GetMachineStatus(
	_ context.Context,
	r *mcm.GetMachineStatusRequest,
) (*mcm.GetMachineStatusResponse, error) {
	if s.getMachineStatus == nil {
		return nil, errUnimplemented
	}
	return s.getMachineStatus(r)
}

func (s *scriptedDriver) ListMachines(context.Context, *mcm.ListMachinesRequest) (*mcm.ListMachinesResponse, error) {
	if s.listMachines == nil {
		return nil, errUnimplemented
	}
	return s.listMachines()
}

func (s *scriptedDriver) GetVolumeIDs(context.Context, *mcm.GetVolumeIDsRequest) (*mcm.GetVolumeIDsResponse, error) {
	return nil, errUnimplemented
}

func returnNotFound(*mcm.GetMachineStatusRequest) (*mcm.GetMachineStatusResponse, error) {
	return nil, status.Error(codes.NotFound, "no instance")
}

func testMachine() provider.Machine {
	return provider.Machine{Cluster: "prod", Namespace: "shop", Name: "m", UID: "uid-m", NeverTried: true}
}

func requireProviderError(t *testing.T, err error) *provider.Error {
	t.Helper()
	typed, is := errors.AsType[*provider.Error](err)
	require.True(t, is, "%v", err)
	return typed
}

// The driver receives the same objects as in a call by MCM's controller.
func TestDriverReceivesTheSameObjectsAsFromMCM(t *testing.T) {
	class := testClass(t, "pool", "prod", leaveSpecUnchanged)
	var got *mcm.CreateMachineRequest
	d := &scriptedDriver{
		getMachineStatus: returnNotFound,
		createMachine: func(_ context.Context, r *mcm.CreateMachineRequest) (*mcm.CreateMachineResponse, error) {
			got = r
			r.Secret.Data[ec2test.SecretKeyUserData][0] = 'x' // drivers may modify their objects
			return &mcm.CreateMachineResponse{
				ProviderID:     "aws:///eu/i-1",
				NodeName:       "n",
				LastKnownState: "made",
				Addresses:      []corev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}},
			}, nil
		},
	}
	m := testMachine()
	m.LastKnownState, m.NodeAnnotations = "before", map[string]string{ec2test.PlacementAnnotation: "{}"}
	made, err := mcmdriver.New(d).CreateInstance(t.Context(), class, m)
	require.NoError(t, err)
	assert.Equal(t, provider.Instance{
		ProviderID:     "aws:///eu/i-1",
		NodeName:       "n",
		MachineName:    "m",
		LastKnownState: "made",
		Addresses:      []provider.Address{{Type: "InternalIP", Address: "10.0.0.1"}},
	}, made)
	assert.Equal(
		t,
		[]string{"shop", "m", "uid-m"},
		[]string{got.Machine.Namespace, got.Machine.Name, string(got.Machine.UID)},
	)
	assert.Equal(t, []string{"MachineClass", "pool"}, []string{got.Machine.Spec.Class.Kind, got.Machine.Spec.Class.Name})
	assert.Equal(t, "before", got.Machine.Status.LastKnownState)
	assert.Equal(t, m.NodeAnnotations, got.Machine.Spec.NodeTemplateSpec.Annotations)
	assert.Equal(
		t,
		[]string{"shop", "pool", "AWS"},
		[]string{got.MachineClass.Namespace, got.MachineClass.Name, got.MachineClass.Provider},
	)
	assert.JSONEq(t, string(class.Spec), string(got.MachineClass.ProviderSpec.Raw))
	assert.Len(t, got.Secret.Data, 3)
	assert.Equal(t, "#!/bin/boot", string(class.Secret[ec2test.SecretKeyUserData]))
}

func TestDriverErrorsAreMappedToCodes(t *testing.T) {
	const medium = 3 * time.Minute
	for name, row := range map[string]struct {
		err     error
		code    provider.Code
		message string
		after   time.Duration
	}{
		"passes":            {status.Error(codes.Unavailable, "busy"), provider.Unavailable, "busy", 0},
		"no capacity":       {status.Error(codes.ResourceExhausted, "quota"), provider.ResourceExhausted, "quota", 0},
		"OpenStack's quota": {status.Error(codes.PermissionDenied, "Quota exceeded for cores: Requested 4, but already used 10 of 10 cores"), provider.ResourceExhausted, "Quota exceeded for cores: Requested 4, but already used 10 of 10 cores", 0},
		"no right":          {status.Error(codes.PermissionDenied, "Policy doesn't allow os_compute_api:servers:create"), provider.PermissionDenied, "Policy doesn't allow os_compute_api:servers:create", medium},
		"internal":          {status.Error(codes.Internal, "oops"), provider.Internal, "oops", 0},
		"for people":        {status.Error(codes.InvalidArgument, "no such image"), provider.InvalidArgument, "no such image", medium},
		"credentials":       {status.Error(codes.Unauthenticated, "expired"), provider.Unauthenticated, "expired", medium},
		"wrapped":           {fmt.Errorf("create: %w", status.Error(codes.FailedPrecondition, "subnet [a] is [full]")), provider.FailedPrecondition, "subnet [a] is [full]", medium},
		"text alone":        {errors.New("rpc: machine codes error: code = [Aborted] message = [again]"), provider.Aborted, "again", 0},
		"no code":           {errors.New("boom"), provider.Unknown, "boom", 0},
		"several lines":     {status.Error(codes.Internal, "UnauthorizedOperation\n\tstatus code: 403"), provider.Internal, "UnauthorizedOperation status code: 403", 0},
		"a Secret's value":  {status.Error(codes.Internal, "key test-secret-access-key"), provider.Internal, "key [redacted]", 0},
		"a value of lines":  {status.Error(codes.Internal, "bad key -----BEGIN-----\nAQAB\n-----END-----"), provider.Internal, "bad key [redacted]", 0},
		"OK is no error":    {status.Error(codes.OK, "fine"), provider.Unknown, "fine", 0},
		"a code of nobody":  {status.Error(codes.Code(99), "new"), provider.Unknown, "new", 0},
		"without a message": {status.Error(codes.Internal, ""), provider.Internal, "the driver gave no reason", 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := &scriptedDriver{
				getMachineStatus: returnNotFound,
				createMachine: func(context.Context, *mcm.CreateMachineRequest) (*mcm.CreateMachineResponse, error) {
					return nil, row.err
				},
			}
			class := testClass(t, "pool", "prod", leaveSpecUnchanged)
			class.Secret["pem"] = []byte("-----BEGIN-----\nAQAB\n-----END-----\n")
			_, err := mcmdriver.New(d).CreateInstance(t.Context(), class, testMachine())
			r := requireProviderError(t, err)
			assert.Equal(t, row.code, r.Code)
			assert.Equal(t, "create instance of machine m: "+row.message, r.Message)
			assert.Equal(t, row.after, r.RetryAfter)
		})
	}
}

func TestDeletionIsRetriedAfterTenMinutes(t *testing.T) {
	d := &scriptedDriver{
		getMachineStatus: returnNotFound,
		deleteMachine: func(*mcm.DeleteMachineRequest) (*mcm.DeleteMachineResponse, error) {
			return nil, status.Error(codes.FailedPrecondition, "the disk is in use")
		},
	}
	m := testMachine()
	m.ProviderID = "aws:///eu/i-1"
	r := requireProviderError(
		t,
		mcmdriver.New(d).DeleteInstance(t.Context(), testClass(t, "pool", "prod", leaveSpecUnchanged), m),
	)
	assert.Equal(t, 10*time.Minute, r.RetryAfter)
}

// MCM stores the LastKnownState of a failed creation, and passes the state to the next creation.
func TestFailedCreationKeepsItsLastKnownState(t *testing.T) {
	d := &scriptedDriver{
		getMachineStatus: returnNotFound,
		createMachine: func(context.Context, *mcm.CreateMachineRequest) (*mcm.CreateMachineResponse, error) {
			return &mcm.CreateMachineResponse{LastKnownState: "disk-1 exists"}, status.Error(codes.Internal, "no interface")
		},
	}
	made, err := mcmdriver.New(d).
		CreateInstance(t.Context(), testClass(t, "pool", "prod", leaveSpecUnchanged), testMachine())
	require.Error(t, err)
	assert.Equal(t, "disk-1 exists", made.LastKnownState)
}

func TestInitializeIsOptional(t *testing.T) {
	for name, row := range map[string]struct {
		initialize func(*mcm.InitializeMachineRequest) (*mcm.InitializeMachineResponse, error)
		want       provider.Instance
	}{
		"not implemented": {nil, provider.Instance{ProviderID: "id", NodeName: "n", MachineName: "m"}},
		"done": {func(r *mcm.InitializeMachineRequest) (*mcm.InitializeMachineResponse, error) {
			return &mcm.InitializeMachineResponse{ProviderID: r.Machine.Spec.ProviderID, NodeName: "other"}, nil
		}, provider.Instance{ProviderID: "id", NodeName: "other", MachineName: "m"}},
		"refused": {func(*mcm.InitializeMachineRequest) (*mcm.InitializeMachineResponse, error) {
			return nil, status.Error(codes.Internal, "no")
		}, provider.Instance{ProviderID: "id", NodeName: "n", MachineName: "m", State: provider.Uninitialized}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &scriptedDriver{
				getMachineStatus:  returnNotFound,
				initializeMachine: row.initialize,
				createMachine: func(context.Context, *mcm.CreateMachineRequest) (*mcm.CreateMachineResponse, error) {
					return &mcm.CreateMachineResponse{ProviderID: "id", NodeName: "n"}, nil
				},
			}
			made, err := mcmdriver.New(d).
				CreateInstance(t.Context(), testClass(t, "pool", "prod", leaveSpecUnchanged), testMachine())
			require.NoError(t, err)
			assert.Equal(t, row.want, made)
		})
	}
}

// If a driver implements neither GetMachineStatus nor ListMachines, CreateInstance must not create an instance.
func TestDriverWithoutStatusAndListCreatesNothing(t *testing.T) {
	p, class := mcmdriver.New(&scriptedDriver{}), testClass(t, "pool", "prod", leaveSpecUnchanged)
	_, err := p.CreateInstance(t.Context(), class, testMachine())
	assert.Equal(t, provider.Unimplemented, requireProviderError(t, err).Code)
	_, err = p.InstanceStatus(t.Context(), class, testMachine())
	assert.Equal(t, provider.Unimplemented, requireProviderError(t, err).Code)
	ids, err := p.VolumeIDs(t.Context(), []provider.Volume{{CSIDriver: ec2test.CSIDriver, Handle: "vol-1"}})
	require.NoError(t, err)
	assert.Empty(t, ids)
}

// If GetMachineStatus returns OutOfRange and ListMachines shows no instance, InstanceStatus returns OutOfRange.
func TestStatusOutOfRangeIsReturnedIfTheListIsEmpty(t *testing.T) {
	d := &scriptedDriver{
		getMachineStatus: func(*mcm.GetMachineStatusRequest) (*mcm.GetMachineStatusResponse, error) {
			return nil, status.Error(codes.OutOfRange, "i-1 and i-2")
		},
		listMachines: func() (*mcm.ListMachinesResponse, error) { return &mcm.ListMachinesResponse{}, nil },
	}
	_, err := mcmdriver.New(d).InstanceStatus(t.Context(), testClass(t, "pool", "prod", leaveSpecUnchanged), testMachine())
	assert.Equal(t, provider.OutOfRange, requireProviderError(t, err).Code)
}

func TestDriverPanicIsAnInternalError(t *testing.T) {
	d := &scriptedDriver{
		getMachineStatus: func(*mcm.GetMachineStatusRequest) (*mcm.GetMachineStatusResponse, error) { panic("nil map") },
	}
	_, err := mcmdriver.New(d).InstanceStatus(t.Context(), testClass(t, "pool", "prod", leaveSpecUnchanged), testMachine())
	r := requireProviderError(t, err)
	assert.Equal(t, provider.Internal, r.Code)
	assert.Contains(t, r.Message, "the driver panicked: nil map")
}

// A driver's create call may ignore its context and continue after the caller's timeout. Until the driver's call ends,
// creating or deleting the machine returns Aborted.
func TestCreateIsAbortedWhileTheDriverIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class, cloud := testClass(t, "pool", "prod", leaveSpecUnchanged), &ec2test.Cloud{}
		d := mcmtest.New(&ec2test.Driver{Cloud: cloud})
		free := make(chan struct{})
		d.BlockCalls("CreateMachine", free)
		p := mcmdriver.New(d)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.CreateInstance(ctx, class, testMachine())
		require.Equal(t, provider.DeadlineExceeded, requireProviderError(t, err).Code)
		again := testMachine()
		again.NeverTried = false
		_, err = p.CreateInstance(t.Context(), class, again)
		assert.Equal(t, provider.Aborted, requireProviderError(t, err).Code)
		assert.Equal(t, provider.Aborted, requireProviderError(t, p.DeleteInstance(t.Context(), class, again)).Code)
		close(free)
		synctest.Wait()
		made, err := p.CreateInstance(t.Context(), class, again)
		require.NoError(t, err)
		assert.Equal(t, ec2test.ProviderID("eu-west-1", "i-00000001"), made.ProviderID)
	})
}

// Two workers serve a provider. The driver's create call takes 40 s and ignores its context. The cancelled attempt of
// the first worker ends with the driver's call, and the attempt of the second worker finds the instance.
func TestCancelledCreationWaitsForTheDriversCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class, cloud := testClass(t, "pool", "prod", leaveSpecUnchanged), &ec2test.Cloud{}
		free := make(chan struct{})
		slow := mcmtest.New(&ec2test.Driver{Cloud: cloud})
		slow.BlockCalls("CreateMachine", free)
		time.AfterFunc(40*time.Second, func() { close(free) })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(6*time.Second, cancel)
		begun := time.Now()
		made, err := mcmdriver.New(slow).CreateInstance(ctx, class, testMachine())
		require.NoError(t, err)
		assert.Equal(t, 40*time.Second, time.Since(begun))

		again := testMachine()
		again.NeverTried = false
		found, err := mcmdriver.New(&ec2test.Driver{Cloud: cloud}).CreateInstance(t.Context(), class, again)
		require.NoError(t, err)
		assert.Equal(t, made.ProviderID, found.ProviderID)
		assert.Len(t, cloud.AllInstances(), 1)
	})
}

// Temporal times out the attempt of the first worker because of missing heartbeats, while the driver's call still runs.
// The attempt of the second worker waits for the instance of the driver's call.
func TestCreateWaitsForAnAttemptWithoutHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class, cloud := testClass(t, "pool", "prod", leaveSpecUnchanged), &ec2test.Cloud{}
		free := make(chan struct{})
		slow := mcmtest.New(&ec2test.Driver{Cloud: cloud})
		slow.BlockCalls("CreateMachine", free)
		go func() { _, _ = mcmdriver.New(slow).CreateInstance(t.Context(), class, testMachine()) }()
		time.AfterFunc(90*time.Second, func() { close(free) })
		again := testMachine()
		again.NeverTried, again.MayRunUntil = false, time.Now().Add(10*time.Minute)
		_, err := mcmdriver.New(&ec2test.Driver{Cloud: cloud}).CreateInstance(t.Context(), class, again)
		require.NoError(t, err)
		synctest.Wait()
		assert.Len(t, cloud.AllInstances(), 1)
	})
}

// A worker crashes after its create request and before it records the instance. If the cloud shows the instance in
// time, the next worker finds it by its name. If the cloud is slower, two instances exist, and InstanceStatus returns
// OutOfRange.
func TestCreateAfterACrashFindsAnInstanceThatIsVisibleInTime(t *testing.T) {
	for name, row := range map[string]struct {
		shows time.Duration
		want  int
	}{
		"the cloud shows it at once":            {0, 1},
		"within the window":                     {4 * time.Second, 1},
		"within the window and the life before": {19 * time.Second, 1},
		"what remains: later than both":         {21 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				class, cloud := testClass(t, "pool", "prod", leaveSpecUnchanged), &ec2test.Cloud{ReadDelay: row.shows}
				// the request of the crashed worker
				_, err := cloud.RunInstances(
					ec2test.Instance{
						Tags: map[string]string{"Name": "m", "kubernetes.io/cluster/prod": "1", "kubernetes.io/role/node": "1"},
					},
				)
				require.NoError(t, err)
				m := testMachine()
				m.NeverTried = false
				p := mcmdriver.New(&ec2test.Driver{Cloud: cloud})
				made, err := p.CreateInstance(t.Context(), class, m)
				require.NoError(t, err)
				listed, err := p.ListInstances(t.Context(), class, "prod")
				require.NoError(t, err)
				assert.Len(t, listed, row.want)
				_, err = p.InstanceStatus(t.Context(), class, m)
				if row.want == 1 {
					require.NoError(t, err)
					return
				}
				assert.Equal(t, provider.OutOfRange, requireProviderError(t, err).Code)
				m.ProviderID = made.ProviderID
				_, err = p.InstanceStatus(t.Context(), class, m)
				require.NoError(t, err, "the recorded one is the machine's")
			})
		})
	}
}

// New passes the values of WithConsistencyWindow and WithDriverOptions to package driver.
func TestOptionsReachTheDriverPackage(t *testing.T) {
	p := mcmdriver.New(
		&scriptedDriver{},
		mcmdriver.WithConsistencyWindow(time.Minute),
		mcmdriver.WithDriverOptions(driver.WithRequestLifetime(time.Minute)),
	)
	traits, err := p.Traits(t.Context(), provider.Class{})
	require.NoError(t, err)
	assert.Equal(t, provider.Traits{Named: true, Window: time.Minute}, traits)
}
