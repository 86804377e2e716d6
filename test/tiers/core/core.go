// Package core lists the integration tests of make test. The tests cover the main function once per kind of object, the
// most important faults, admission, rights, an adoption, the check before a migration, and the core of Cluster API. All
// other integration tests run only in make test-all.
package core

// ListTestsByPackage returns the names of the tests by their package below test/integration. The names in the list are
// unique.
func ListTestsByPackage() map[string][]string {
	return map[string][]string{
		"admission": {"TestCRDsInTheAPIServer"},
		"rights":    {"TestRolesGrantOnlyNeededRights"},
		"kills":     {"TestAProcessIsKilledInACreationADrainAndARollout", "TestWorkerIsKilledAfterItSetsAMachineRunning"},
		"chain": {
			"TestMCMScenarios",
			"TestCreationIsInterruptedByADeletion",
			"TestMissingClassAndSecretAreShown",
			"TestNodeLossSetsMachinePhaseUnknown",
			"TestSecretClassAndDeploymentAreDeletedTogether",
			"TestClassDeletionWaitsForItsMachines",
			"TestSignalsThatArriveAsRunsEndAreNotLost",
			"TestLeakedSecretsAreFound",
			"TestTakeoverCheckReportsAnActiveMCM",
		},
		"life": {
			"TestMachineThatNeverJoinsFailsOnTime",
			"TestDeadNodeIsReplaced",
			"TestReplacementIsHeldIfMostNodesFailTogether",
			"TestCreationsContinueWhenTheQuotaHasRoom",
			"TestCreationsContinueWhenTheSecretIsCorrected",
			"TestNodeIsUpdatedInPlace",
			"TestPreservedMachineFailsAndStays",
			"TestBootstrapTokenExistsOnlyDuringTheJoin",
			"TestNodeGetsTheFieldsOfItsTemplate",
			"TestCopiesOfMachinesNeverDeleteInstancesOfTheOriginals",
		},
		"drain": {
			"TestRelaxedBudgetEndsTheDrain",
			"TestPermanentlyBlockingBudgetEscalatesTheDrain",
			"TestPodsWithVolumesMoveOneAfterTheOther",
			"TestStuckDrainAcceptsRequests",
			"TestDrainRulesDecideWhichPodsAreDrainedAndWhen",
		},
		"sets": {
			"TestSetWorksFromCreationToDeletion",
			"TestFiftyMachinesWithoutControllerAreAdopted",
			"TestASetIsFrozenAndUnfrozen",
			"TestSweepDeletesOnlyTheInstanceWithoutAMachine",
			"TestScaleDownDeletesExactlyTheMarkedMachines",
		},
		"rollouts": {
			"TestRollingUpdateKeepsMaxSurgeAndMaxUnavailable",
			"TestRolloutContinuesAfterSizeAndTemplateChange",
			"TestRolloutIsPausedAndResumed",
			"TestRolloutIsCancelledAndRolledBack",
			"TestInPlaceUpdateAndRollback",
			"TestRecreateMakesNoNewMachineBeforeTheLastOldOneIsGone",
			"TestOnDeleteReplacesOnlyDeletedMachines",
			"TestStagedRolloutWaitsAndRollsBackAutomatically",
		},
		"explain": {"TestBlockedMachineIsExplainedAsJSON", "TestKubectlRunsThePlugin"},
		"capi": {
			"TestSetIsScaledFromZeroToThreeToOneAndDeleted",
			"TestDeploymentIsCreatedRolledOutAndDeleted",
			"TestASetIsHandedOverAndBackWithoutReplacingAMachine",
			"TestBudgetBlocksADrainUntilItAllowsTheEviction",
			"TestAnUnhealthyMachineIsReplaced",
		},
	}
}
