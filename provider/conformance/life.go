package conformance

import (
	"errors"
	"slices"

	"millwright/provider"
)

func (s *conformance) TestStatusOfAnAbsentInstanceIsNotFound() {
	_, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, s.machine())
	s.fails(err, provider.NotFound)
}

func (s *conformance) TestStatusFindsWithoutAProviderID() {
	m := s.machine()
	made := s.create(s.Class, m)
	for _, known := range []provider.Machine{m, tried(m), recorded(m, made)} {
		seen, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, known)
		s.Require().NoError(err)
		s.Equal(made.ProviderID, seen.ProviderID)
		s.sameNode(made, seen)
		s.Equal(s.uid(m), seen.MachineUID)
		s.keepsSecrets(nil, seen)
	}
}

func (s *conformance) TestStatusOfAnotherClustersInstanceIsNotFound() {
	m := s.machine()
	s.create(s.Class, m)
	class, m := s.elsewhere(m)
	_, err := s.Provider.InstanceStatus(s.T().Context(), class, m)
	s.fails(err, provider.NotFound)
}

func (s *conformance) TestStatusOfSeveralIsOutOfRange() {
	s.several()
	m := s.machine()
	made := s.create(s.Class, m)
	s.plant(m)
	_, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, m)
	s.fails(err, provider.OutOfRange)
	seen, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, recorded(m, made))
	if s.named { // the second instance may belong to another Machine
		s.Require().NoError(err)
		s.Equal(made.ProviderID, seen.ProviderID)
		return
	}
	s.fails(err, provider.OutOfRange)
}

func (s *conformance) TestInitialize() {
	s.need(s.Initializing != nil, "make instances that wait to be initialized")
	m := s.machine()
	_, err := s.Provider.InitializeInstance(s.T().Context(), *s.Initializing, m)
	s.fails(err, provider.NotFound)

	made := s.create(*s.Initializing, m)
	s.Equal(provider.Uninitialized, made.State)
	m = recorded(m, made)
	_, err = s.Provider.InstanceStatus(s.T().Context(), *s.Initializing, m)
	waits := s.failure(err, provider.NotInitialized)
	s.Require().NotNil(waits.Instance)
	s.Equal(made.ProviderID, waits.Instance.ProviderID)
	s.sameNode(made, *waits.Instance)
	s.Equal(made.ProviderID, s.create(*s.Initializing, m).ProviderID, "adopted before it is initialized")

	for range 2 {
		done, err := s.Provider.InitializeInstance(s.T().Context(), *s.Initializing, m)
		s.Require().NoError(err)
		s.Equal(made.ProviderID, done.ProviderID)
		s.NotEqual(provider.Uninitialized, done.State)
		s.settle()
	}
	seen, err := s.Provider.InstanceStatus(s.T().Context(), *s.Initializing, m)
	s.Require().NoError(err)
	s.NotEqual(provider.Uninitialized, seen.State)
}

func (s *conformance) TestInitializeWithoutSuchAStepIsUnimplementedOrDone() {
	m := s.machine()
	made := s.createNow(s.Class, m) // without settle: InitializeInstance may follow at once
	done, err := s.Provider.InitializeInstance(s.T().Context(), s.Class, recorded(m, made))
	if err != nil {
		s.fails(err, provider.Unimplemented)
		return
	}
	s.Equal(made.ProviderID, done.ProviderID)
}

func (s *conformance) TestDeleteOfAnAbsentInstanceIsASuccess() {
	m := s.machine()
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m))
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, tried(m)))
}

func (s *conformance) TestDeleteByProviderIDOrUID() {
	s.tagged("TestANameAloneDeletesNothing")
	byID, byUID, other := s.machine(), s.machine(), s.machine()
	byID = recorded(byID, s.create(s.Class, byID))
	s.create(s.Class, byUID)
	kept := s.create(s.Class, other)
	for _, m := range []provider.Machine{byID, tried(byUID)} {
		s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m))
		s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m), "again, at once")
		s.gone(m)
		s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m), "again, once it is gone")
	}
	left := s.list()
	s.Require().Len(left, 1)
	s.Equal(kept.ProviderID, left[0].ProviderID)
}

func (s *conformance) TestDeleteByProviderID() {
	m, other := s.machine(), s.machine()
	m = recorded(m, s.create(s.Class, m))
	kept := s.create(s.Class, other)
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m))
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m), "again, at once")
	s.gone(m)
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m), "again, once it is gone")
	left := s.list()
	s.Require().Len(left, 1)
	s.Equal(kept.ProviderID, left[0].ProviderID)
}

// If instances carry names only, the caller decides whose an instance is, and deletes it by its provider ID.
func (s *conformance) TestANameAloneDeletesNothing() {
	if !s.named {
		s.T().Skip("instances of this cloud carry UIDs: TestDeleteByProviderIDOrUID")
	}
	m := s.machine()
	made := s.create(s.Class, m)
	s.fails(s.Provider.DeleteInstance(s.T().Context(), s.Class, tried(m)), provider.Aborted)
	s.Len(s.list(), 1)
	m.ProviderID = made.ProviderID
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, m))
	s.gone(m)
	s.Empty(s.list())
}

// The Machine may be a copy of another one, or may have another one's provider ID for another reason.
func (s *conformance) TestAnInstanceOfAnotherMachineIsRefused() {
	if s.named {
		s.T().Skip("instances of this cloud carry no UID: the caller looks who names them")
	}
	m, stranger := s.machine(), s.machine()
	made := s.create(s.Class, m)
	stranger = recorded(stranger, made)
	for _, err := range []error{
		s.Provider.DeleteInstance(s.T().Context(), s.Class, stranger),
		func() error { _, err := s.Provider.CreateInstance(s.T().Context(), s.Class, stranger); return err }(),
	} {
		s.fails(err, provider.AlreadyExists)
		refusal, is := errors.AsType[*provider.Error](err)
		s.Require().True(is)
		s.Require().NotNil(refusal.Instance, "so that the caller can decide whose it is")
		s.Equal([]string{made.ProviderID, m.UID}, []string{refusal.Instance.ProviderID, refusal.Instance.MachineUID})
	}
	s.Len(s.list(), 1)
	stranger.FormerUID = m.UID // as if it were proven that the Machine was restored with another UID than before
	adopted, err := s.Provider.CreateInstance(s.T().Context(), s.Class, stranger)
	s.Require().NoError(err)
	s.Equal(made.ProviderID, adopted.ProviderID)
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, stranger))
	s.gone(m)
	s.Empty(s.list())
}

func (s *conformance) TestDeleteOfAStub() {
	m := s.machine()
	made := s.create(s.Class, m)
	stub := provider.Machine{Cluster: cluster, Namespace: m.Namespace, Name: m.Name, ProviderID: made.ProviderID}
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, stub))
	s.gone(m)
}

func (s *conformance) TestDeleteByUIDTakesDuplicatesToo() {
	m := s.machine()
	s.crowded(m)
	if s.named { // a person must decide which one is deleted
		s.fails(s.Provider.DeleteInstance(s.T().Context(), s.Class, tried(m)), provider.Aborted)
		s.Len(s.list(), 2)
		return
	}
	s.Require().NoError(s.Provider.DeleteInstance(s.T().Context(), s.Class, tried(m)))
	s.gone(m)
	s.Empty(s.list())
}

func (s *conformance) TestDeleteLeavesOtherClustersAlone() {
	if s.Elsewhere != nil {
		s.T().
			Skip("classes of this cloud name their cluster: whether a delete request for an ID looks at the cluster is the cloud's matter")
	}
	m := s.machine()
	made := s.create(s.Class, m)
	foreign := recorded(m, made)
	foreign.Cluster = "another"
	// it may fail or succeed: only the remaining instances count
	_ = s.Provider.DeleteInstance(s.T().Context(), s.Class, foreign)
	s.Len(s.list(), 1)
}

func (s *conformance) TestDeleteNamesNothingIsRefused() {
	m := s.machine()
	m.UID = ""
	s.fails(s.Provider.DeleteInstance(s.T().Context(), s.Class, m), provider.InvalidArgument)
}

func (s *conformance) TestListIsScopedAndSorted() {
	s.Empty(s.list())
	want := []string{}
	for range 12 { // with more than ten, the order by text and the order by number differ
		want = append(want, s.create(s.Class, s.machine()).ProviderID)
	}
	class, foreign := s.elsewhere(s.machine())
	s.create(class, foreign)
	otherClass := s.Class
	otherClass.Name = "another"
	otherNamespace := s.Class
	otherNamespace.Namespace = "another"
	for _, other := range []provider.Class{otherClass, otherNamespace} {
		id := s.create(other, s.machine()).ProviderID
		if s.named { // instances do not carry their class, so the list has those of all classes
			want = append(want, id)
		}
	}

	slices.Sort(want)
	got := []string{}
	for _, instance := range s.list() {
		got = append(got, instance.ProviderID)
		s.NotEmpty(instance.MachineName)
		s.Equal(s.named, instance.MachineUID == "")
	}
	s.Equal(want, got)
}

func (s *conformance) TestListNeedsACluster() {
	_, err := s.Provider.ListInstances(s.T().Context(), s.Class, "")
	s.fails(err, provider.InvalidArgument)
}

func (s *conformance) TestVolumeIDsKeepsOwnVolumesInOrder() {
	s.need(s.OwnVolume != nil, "name volumes")
	foreign := provider.Volume{Name: "pv-x", CSIDriver: "csi.of.somebody.else", Handle: "vol-x"}
	ids, err := s.Provider.VolumeIDs(s.T().Context(), []provider.Volume{
		s.OwnVolume("vol-b"), foreign, s.OwnVolume("vol-a"), {Name: "pv-empty"}, s.OwnVolume("vol-c"),
	})
	s.Require().NoError(err)
	s.Equal([]string{"vol-b", "vol-a", "vol-c"}, ids)

	ids, err = s.Provider.VolumeIDs(s.T().Context(), []provider.Volume{foreign})
	s.Require().NoError(err)
	s.Empty(ids)
}
