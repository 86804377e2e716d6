package conformance

import (
	"errors"
	"slices"

	"millwright/provider"
)

func (s *conformanceTest) TestStatusOfAnAbsentInstanceIsNotFound() {
	_, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, s.newMachine())
	s.requireCode(err, provider.NotFound)
}

func (s *conformanceTest) TestStatusFindsTheInstanceWithoutAProviderID() {
	m := s.newMachine()
	made := s.createInstance(s.Class, m)
	for _, known := range []provider.Machine{m, withPossibleEarlierCreate(m), withRecordedInstance(m, made)} {
		seen, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, known)
		s.Require().NoError(err)
		s.Equal(made.ProviderID, seen.ProviderID)
		s.requireSameNodeName(made, seen)
		s.Equal(s.expectedUID(m), seen.MachineUID)
		s.requireNoSecrets(nil, seen)
	}
}

func (s *conformanceTest) TestStatusOfAnotherClustersInstanceIsNotFound() {
	m := s.newMachine()
	s.createInstance(s.Class, m)
	class, m := s.withOtherCluster(m)
	_, err := s.Provider.InstanceStatus(s.T().Context(), class, m)
	s.requireCode(err, provider.NotFound)
}

func (s *conformanceTest) TestStatusOfSeveralInstancesIsOutOfRange() {
	s.skipIfNamesUnique()
	m := s.newMachine()
	made := s.createInstance(s.Class, m)
	s.createInstanceByHand(m)
	_, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, m)
	s.requireCode(err, provider.OutOfRange)
	seen, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, withRecordedInstance(m, made))
	if s.hasNamedInstances { // without UID tags, the second instance may belong to another Machine
		s.Require().NoError(err)
		s.Equal(made.ProviderID, seen.ProviderID)
		return
	}
	s.requireCode(err, provider.OutOfRange)
}

func (s *conformanceTest) TestInitializeRunsTheInitializeStep() {
	s.skipUnlessSupported(s.ClassWithInitializeStep != nil, "make instances that wait to be initialized")
	m := s.newMachine()
	_, err := s.Provider.InitializeInstance(s.T().Context(), *s.ClassWithInitializeStep, m)
	s.requireCode(err, provider.NotFound)

	made := s.createInstance(*s.ClassWithInitializeStep, m)
	s.Equal(provider.Uninitialized, made.State)
	m = withRecordedInstance(m, made)
	_, err = s.Provider.InstanceStatus(s.T().Context(), *s.ClassWithInitializeStep, m)
	waits := s.requireErrorWithCode(err, provider.NotInitialized)
	s.Require().NotNil(waits.Instance)
	s.Equal(made.ProviderID, waits.Instance.ProviderID)
	s.requireSameNodeName(made, *waits.Instance)
	s.Equal(
		made.ProviderID,
		s.createInstance(*s.ClassWithInitializeStep, m).ProviderID,
		"adopted before it is initialized",
	)

	for range 2 {
		done, err := s.Provider.InitializeInstance(s.T().Context(), *s.ClassWithInitializeStep, m)
		s.Require().NoError(err)
		s.Equal(made.ProviderID, done.ProviderID)
		s.NotEqual(provider.Uninitialized, done.State)
		s.waitForConsistencyWindow()
	}
	seen, err := s.Provider.InstanceStatus(s.T().Context(), *s.ClassWithInitializeStep, m)
	s.Require().NoError(err)
	s.NotEqual(provider.Uninitialized, seen.State)
}

func (s *conformanceTest) TestInitializeIsHarmlessWithoutInitializeStep() {
	m := s.newMachine()
	// the test does not wait for the consistency window, because InitializeInstance may be called at once
	made := s.createInstanceWithoutWait(s.Class, m)
	done, err := s.Provider.InitializeInstance(s.T().Context(), s.Class, withRecordedInstance(m, made))
	if err != nil {
		s.requireCode(err, provider.Unimplemented)
		return
	}
	s.Equal(made.ProviderID, done.ProviderID)
}

func (s *conformanceTest) TestDeleteOfAnAbsentInstanceSucceeds() {
	m := s.newMachine()
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m))
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, withPossibleEarlierCreate(m)))
}

func (s *conformanceTest) TestDeleteByProviderIDOrUID() {
	s.skipWithoutUIDTags("TestANameAloneDeletesNothing")
	byID, byUID, other := s.newMachine(), s.newMachine(), s.newMachine()
	byID = withRecordedInstance(byID, s.createInstance(s.Class, byID))
	s.createInstance(s.Class, byUID)
	kept := s.createInstance(s.Class, other)
	for _, m := range []provider.Machine{byID, withPossibleEarlierCreate(byUID)} {
		s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m))
		s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m), "again, at once")
		s.waitUntilNotFound(m)
		s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m), "again, once it is gone")
	}
	left := s.listInstances()
	s.Require().Len(left, 1)
	s.Equal(kept.ProviderID, left[0].ProviderID)
}

func (s *conformanceTest) TestDeleteByProviderID() {
	m, other := s.newMachine(), s.newMachine()
	m = withRecordedInstance(m, s.createInstance(s.Class, m))
	kept := s.createInstance(s.Class, other)
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m))
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m), "again, at once")
	s.waitUntilNotFound(m)
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m), "again, once it is gone")
	left := s.listInstances()
	s.Require().Len(left, 1)
	s.Equal(kept.ProviderID, left[0].ProviderID)
}

// If instances carry only names, the caller decides which Machine owns an instance, and deletes the instance by its
// provider ID.
func (s *conformanceTest) TestANameAloneDeletesNothing() {
	if !s.hasNamedInstances {
		s.T().Skip("instances of this cloud carry UIDs: TestDeleteByProviderIDOrUID")
	}
	m := s.newMachine()
	made := s.createInstance(s.Class, m)
	s.requireCode(s.Provider.DeleteInstance(s.T().Context(), s.Class, withPossibleEarlierCreate(m)), provider.Aborted)
	s.Len(s.listInstances(), 1)
	m.ProviderID = made.ProviderID
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m))
	s.waitUntilNotFound(m)
	s.Empty(s.listInstances())
}

// A Machine may have the provider ID of another Machine's instance, for example as a copy of the other Machine.
func (s *conformanceTest) TestRequestsForAnInstanceOfAnotherMachineAreRefused() {
	if s.hasNamedInstances {
		s.T().Skip("instances of this cloud carry no UID: the caller looks who names them")
	}
	m, stranger := s.newMachine(), s.newMachine()
	made := s.createInstance(s.Class, m)
	stranger = withRecordedInstance(stranger, made)
	for _, err := range []error{
		s.Provider.DeleteInstance(s.T().Context(), s.Class, stranger),
		func() error { _, err := s.Provider.CreateInstance(s.T().Context(), s.Class, stranger); return err }(),
	} {
		s.requireCode(err, provider.AlreadyExists)
		refusal, is := errors.AsType[*provider.Error](err)
		s.Require().True(is)
		s.Require().NotNil(refusal.Instance, "so that the caller can decide whose it is")
		s.Equal([]string{made.ProviderID, m.UID}, []string{refusal.Instance.ProviderID, refusal.Instance.MachineUID})
	}
	s.Len(s.listInstances(), 1)
	stranger.FormerUID = m.UID // the caller knows that the Machine was restored with a new UID
	adopted, err := s.Provider.CreateInstance(s.T().Context(), s.Class, stranger)
	s.Require().NoError(err)
	s.Equal(made.ProviderID, adopted.ProviderID)
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, stranger))
	s.waitUntilNotFound(m)
	s.Empty(s.listInstances())
}

func (s *conformanceTest) TestDeleteNeedsOnlyAProviderID() {
	m := s.newMachine()
	made := s.createInstance(s.Class, m)
	stub := provider.Machine{Cluster: clusterName, Namespace: m.Namespace, Name: m.Name, ProviderID: made.ProviderID}
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, stub))
	s.waitUntilNotFound(m)
}

func (s *conformanceTest) TestDeleteByUIDDeletesDuplicates() {
	m := s.newMachine()
	s.createTwoInstancesByHand(m)
	if s.hasNamedInstances { // a person must decide which instance is deleted
		s.requireCode(s.Provider.DeleteInstance(s.T().Context(), s.Class, withPossibleEarlierCreate(m)), provider.Aborted)
		s.Len(s.listInstances(), 2)
		return
	}
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, withPossibleEarlierCreate(m)))
	s.waitUntilNotFound(m)
	s.Empty(s.listInstances())
}

func (s *conformanceTest) TestDeleteLeavesOtherClustersAlone() {
	if s.OtherClusterClass != nil {
		s.T().
			Skip("classes of this cloud name their cluster: whether a delete request for an ID looks at the cluster is the cloud's matter")
	}
	m := s.newMachine()
	made := s.createInstance(s.Class, m)
	foreign := withRecordedInstance(m, made)
	foreign.Cluster = "another"
	// The deletion may fail or succeed: the test checks only the remaining instances.
	_ = s.Provider.DeleteInstance(s.T().Context(), s.Class, foreign)
	s.Len(s.listInstances(), 1)
}

func (s *conformanceTest) TestDeleteWithoutUIDAndProviderIDIsRefused() {
	m := s.newMachine()
	m.UID = ""
	s.requireCode(s.Provider.DeleteInstance(s.T().Context(), s.Class, m), provider.InvalidArgument)
}

func (s *conformanceTest) TestListIsSortedAndOmitsForeignInstances() {
	s.Empty(s.listInstances())
	want := []string{}
	for range 12 { // with more than 10 instances, text order and number order differ
		want = append(want, s.createInstance(s.Class, s.newMachine()).ProviderID)
	}
	class, foreign := s.withOtherCluster(s.newMachine())
	s.createInstance(class, foreign)
	otherClass := s.Class
	otherClass.Name = "another"
	otherNamespace := s.Class
	otherNamespace.Namespace = "another"
	for _, other := range []provider.Class{otherClass, otherNamespace} {
		id := s.createInstance(other, s.newMachine()).ProviderID
		if s.hasNamedInstances { // instances have no class tag, so the list contains the instances of all classes
			want = append(want, id)
		}
	}

	slices.Sort(want)
	got := []string{}
	for _, instance := range s.listInstances() {
		got = append(got, instance.ProviderID)
		s.NotEmpty(instance.MachineName)
		s.Equal(s.hasNamedInstances, instance.MachineUID == "")
	}
	s.Equal(want, got)
}

func (s *conformanceTest) TestListNeedsACluster() {
	_, err := s.Provider.ListInstances(s.T().Context(), s.Class, "")
	s.requireCode(err, provider.InvalidArgument)
}

func (s *conformanceTest) TestVolumeIDsKeepsOwnVolumesInOrder() {
	s.skipUnlessSupported(s.NewVolume != nil, "name volumes")
	foreign := provider.Volume{Name: "pv-x", CSIDriver: "csi.of.somebody.else", Handle: "vol-x"}
	ids, err := s.Provider.VolumeIDs(s.T().Context(), []provider.Volume{
		s.NewVolume("vol-b"), foreign, s.NewVolume("vol-a"), {Name: "pv-empty"}, s.NewVolume("vol-c"),
	})
	s.Require().NoError(err)
	s.Equal([]string{"vol-b", "vol-a", "vol-c"}, ids)

	ids, err = s.Provider.VolumeIDs(s.T().Context(), []provider.Volume{foreign})
	s.Require().NoError(err)
	s.Empty(ids)
}
