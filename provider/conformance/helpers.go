package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"millwright/provider"
)

func (s *conformanceTest) setUp() {
	s.Cloud = s.harness.NewCloud(s.T())
	s.machineCount = 0
	s.Class = withCanarySecrets(s.Class)
	for _, class := range []**provider.Class{&s.ClassWithInitializeStep, &s.OtherClusterClass} {
		if *class != nil {
			*class = new(withCanarySecrets(**class))
		}
	}
	traits, err := s.Provider.Traits(s.T().Context(), s.Class)
	s.Require().NoError(err)
	s.hasNamedInstances, s.hasUniqueNames = traits.Named, traits.Idempotency == provider.ByName
	if s.SupportedCodes == nil {
		s.SupportedCodes = provider.Codes()
	}
}

// expectedUID returns the UID tag that the machine's instance must have; empty if instances have only names.
func (s *conformanceTest) expectedUID(m provider.Machine) string {
	if s.hasNamedInstances {
		return ""
	}
	return m.UID
}

// withOtherCluster returns a class and a machine for another cluster.
func (s *conformanceTest) withOtherCluster(m provider.Machine) (provider.Class, provider.Machine) {
	m.Cluster = "another"
	if s.OtherClusterClass != nil {
		return *s.OtherClusterClass, m
	}
	return s.Class, m
}

func withCanarySecrets(class provider.Class) provider.Class {
	secret := maps.Clone(class.Secret)
	if secret == nil {
		secret = provider.Secret{}
	}
	for key, value := range canarySecrets() {
		secret[key] = []byte(value)
	}
	class.Secret = secret
	return class
}

// newMachine returns a new machine with NeverTried = true: CreateInstance was never called for it.
func (s *conformanceTest) newMachine() provider.Machine {
	s.machineCount++
	return provider.Machine{
		Cluster: clusterName, Namespace: s.Class.Namespace, NeverTried: true,
		Name: fmt.Sprintf("machine-%d", s.machineCount), UID: fmt.Sprintf("4c2b6a1e-0000-4000-8000-%012d", s.machineCount),
	}
}

// withPossibleEarlierCreate returns the machine with NeverTried = false: an earlier CreateInstance call may exist.
func withPossibleEarlierCreate(m provider.Machine) provider.Machine {
	m.NeverTried = false
	return m
}

// withRecordedInstance returns the machine with the provider ID and the LastKnownState of its instance, as after a
// successful creation.
func withRecordedInstance(m provider.Machine, i provider.Instance) provider.Machine {
	m.ProviderID, m.LastKnownState, m.NeverTried = i.ProviderID, i.LastKnownState, false
	return m
}

// createInstance creates an instance and waits until every read shows the instance. The test fails if the creation
// fails.
func (s *conformanceTest) createInstance(class provider.Class, m provider.Machine) provider.Instance {
	s.T().Helper()
	defer s.waitForConsistencyWindow()
	return s.createInstanceWithoutWait(class, m)
}

// createInstanceWithoutWait creates an instance. The test fails if the creation fails.
func (s *conformanceTest) createInstanceWithoutWait(class provider.Class, m provider.Machine) provider.Instance {
	s.T().Helper()
	instance, err := s.Provider.CreateInstance(s.T().Context(), class, m)
	s.Require().NoError(err)
	s.requireNoSecrets(nil, instance)
	return instance
}

// waitForConsistencyWindow waits for the duration of the cloud's window, after which every read shows all earlier
// changes.
func (s *conformanceTest) waitForConsistencyWindow() {
	s.T().Helper()
	traits, err := s.Provider.Traits(s.T().Context(), s.Class)
	s.Require().NoError(err)
	time.Sleep(traits.Window)
}

// createInstanceByHand calls CreateInstanceByHand for the machine, and waits until every read shows the instance.
func (s *conformanceTest) createInstanceByHand(m provider.Machine) {
	s.T().Helper()
	s.skipUnlessSupported(s.CreateInstanceByHand != nil, "plant instances")
	s.CreateInstanceByHand(m)
	s.waitForConsistencyWindow()
}

// listInstances waits until every read shows all earlier changes, and returns the instances of Class. The test fails if
// ListInstances fails.
func (s *conformanceTest) listInstances() []provider.Instance {
	s.T().Helper()
	s.waitForConsistencyWindow()
	instances, err := s.Provider.ListInstances(s.T().Context(), s.Class, clusterName)
	s.Require().NoError(err)
	s.requireNoSecrets(nil, instances)
	return instances
}

// requireCode requires that err is a *provider.Error with the code and a message of one line, and contains no secrets.
func (s *conformanceTest) requireCode(err error, code provider.Code) {
	s.T().Helper()
	_ = s.requireErrorWithCode(err, code)
}

// requireErrorWithCode checks err like requireCode, and returns err as a *provider.Error.
func (s *conformanceTest) requireErrorWithCode(err error, code provider.Code) *provider.Error {
	s.T().Helper()
	s.Require().Error(err)
	typed, ok := errors.AsType[*provider.Error](err)
	s.Require().True(ok, "%T is not a *provider.Error", err)
	s.Equal(code, typed.Code, "the error: %v", err)
	s.NotEmpty(typed.Message)
	s.NotContains(typed.Message, "\n", "a message is one sentence")
	s.requireNoSecrets(err, nil)
	return typed
}

// requireNoSecrets requires that the error and the result contain no value of the Secret.
func (s *conformanceTest) requireNoSecrets(err error, result any) {
	s.T().Helper()
	var said strings.Builder
	for e := err; e != nil; e = errors.Unwrap(e) {
		fmt.Fprintf(&said, "%v\n%+v\n%#v\n", e, e, e)
		encoded, _ := json.Marshal(e) // an error without a JSON form cannot leak a secret in JSON
		said.Write(encoded)
	}
	encoded, marshalErr := json.Marshal(result)
	s.Require().NoError(marshalErr)
	fmt.Fprintf(&said, "%s\n%+v", encoded, result)
	s.Equal(s.Class.Secret.Redact(said.String()), said.String(), "no value of the secret comes out in any form")
	for key, value := range s.Class.Secret {
		if form := strings.TrimSpace(string(value)); form != "" {
			s.NotContains(said.String(), form, "the value of secret key %s came out", key)
		}
	}
}

// waitUntilNotFound waits until InstanceStatus returns NotFound for the machine.
func (s *conformanceTest) waitUntilNotFound(m provider.Machine) {
	s.T().Helper()
	s.waitForConsistencyWindow()
	m.NeverTried = true // the Provider then searches only once per call; Eventually repeats the call
	s.Eventually(func() bool {
		_, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, m)
		return provider.CodeOfError(err) == provider.NotFound
	}, maxActionWait, 5*time.Millisecond)
}

// skipWithoutUIDTags skips a test about UID tags if instances of the cloud carry no UID tags. Parameter instead is the
// name of the equivalent test for clouds without UID tags.
func (s *conformanceTest) skipWithoutUIDTags(instead string) {
	s.T().Helper()
	if s.hasNamedInstances {
		s.T().Skip("instances of this cloud carry no UID: " + instead)
	}
}

// isSuccessCode calls Cloud.IsSuccessCode; it returns false if that field is nil.
func (s *conformanceTest) isSuccessCode(method provider.Method, code provider.Code) bool {
	return s.IsSuccessCode != nil && s.IsSuccessCode(method, code)
}

// createTwoInstancesByHand creates two instances with the machine's name by hand.
func (s *conformanceTest) createTwoInstancesByHand(m provider.Machine) {
	s.T().Helper()
	s.skipIfNamesUnique()
	s.createInstanceByHand(m)
	s.createInstanceByHand(m)
}

// skipIfNamesUnique skips a test that needs several instances with the same name if the cloud's names are unique.
func (s *conformanceTest) skipIfNamesUnique() {
	s.T().Helper()
	s.skipUnlessSupported(!s.RequiresUniqueNames, "make two instances of one name: names are unique")
}

// skipUnlessSupported skips the test if supported is false. Parameter what describes the missing ability of the
// harness.
func (s *conformanceTest) skipUnlessSupported(supported bool, what string) {
	s.T().Helper()
	if !supported {
		s.T().Skipf("the harness cannot %s", what)
	}
}

// callMethod calls a method of the Provider for a machine with Class, and returns only the error.
func (s *conformanceTest) callMethod(ctx context.Context, method provider.Method, m provider.Machine) error {
	return s.callMethodWithClass(ctx, s.Class, method, m)
}

// callMethodWithClass calls a method of the Provider for a machine with the given class, and returns only the error.
func (s *conformanceTest) callMethodWithClass(
	ctx context.Context,
	class provider.Class,
	method provider.Method,
	m provider.Machine,
) error {
	var err error
	switch method {
	case provider.MethodCreateInstance:
		_, err = s.Provider.CreateInstance(ctx, class, m)
	case provider.MethodInitializeInstance:
		_, err = s.Provider.InitializeInstance(ctx, class, m)
	case provider.MethodDeleteInstance:
		err = s.Provider.DeleteInstance(ctx, class, m)
	case provider.MethodInstanceStatus:
		_, err = s.Provider.InstanceStatus(ctx, class, m)
	case provider.MethodListInstances:
		_, err = s.Provider.ListInstances(ctx, class, clusterName)
	case provider.MethodVolumeIDs:
		_, err = s.Provider.VolumeIDs(ctx, nil)
	}
	return err
}

// requireSameNodeName requires that seen has the node name of made, unless made has no node name yet.
func (s *conformanceTest) requireSameNodeName(made, seen provider.Instance) {
	s.T().Helper()
	if made.NodeName != "" {
		s.Equal(made.NodeName, seen.NodeName)
	}
}

// remoteMethods returns the names of the methods that send requests to the cloud for a machine with an instance. The
// list contains InitializeInstance only if the cloud has an initialize step.
func (s *conformanceTest) remoteMethods(m provider.Machine) []provider.Method {
	methods := []provider.Method{
		provider.MethodCreateInstance,
		provider.MethodDeleteInstance,
		provider.MethodInstanceStatus,
		provider.MethodListInstances,
	}
	_, err := s.Provider.InitializeInstance(s.T().Context(), s.Class, m)
	if provider.CodeOfError(err) == provider.Unimplemented {
		return methods
	}
	s.Require().NoError(err)
	return append(methods, provider.MethodInitializeInstance)
}
