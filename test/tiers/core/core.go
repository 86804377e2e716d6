// Package core lists the integration tests of make test. The tests cover the main function once per kind of object, the
// most important faults, admission, rights, an adoption, the check before a migration, and the core of Cluster API. All
// other integration tests run only in make test-all.
package core

// TestNamesByPackage returns the names of the tests by their package below test/integration. The names in the list are
// unique.
func TestNamesByPackage() map[string][]string {
	return map[string][]string{
		"admission": {"TestAdmission"},
		"rights":    {"TestRolesAreAsSmallAsCanBe"},
		"kills":     {"TestAProcessIsKilledInACreationADrainAndARollout", "TestAWorkerIsKilledAfterItsReport"},
		"chain": {
			"TestMCMScenarios",
			"TestCreationIsInterruptedByADeletion",
			"TestMissingClassAndSecretAreShown",
			"TestNodeLossSetsUnknown",
			"TestSecretClassAndDeploymentAreDeletedTogether",
			"TestAClassWaitsForItsMachines",
			"TestSignalsThatArriveAsRunsEndAreNotLost",
			"TestLeakedSecretsAreFound",
			"TestTakeoverCheckReportsAnActiveMCM",
		},
		"life": {
			"TestJoinThatNeverHappensFailsOnTime",
			"TestDeadNodeIsReplaced",
			"TestReplacementIsHeldIfMostNodesDieAtOnce",
			"TestCreationsContinueWhenTheQuotaHasRoom",
			"TestCreationsContinueWhenTheSecretIsCorrected",
			"TestNodeIsUpdatedInPlace",
			"TestPreservedMachineFailsAndStays",
			"TestTokenIsMadeForTheJoinAndRemovedAfterIt",
			"TestNodeCarriesWhatItsTemplateSays",
			"TestCopiesOfMachinesNeverDeleteInstancesOfTheOriginals",
		},
		"drain": {
			"TestBudgetThatLoosensEndsTheDrain",
			"TestBudgetThatNeverLoosensEscalatesTheDrain",
			"TestPodsWithVolumesMoveOneAfterTheOther",
			"TestStuckDrainTakesRequests",
			"TestDrainRulesDecideWhichPodsAreDrainedAndWhen",
		},
		"sets": {
			"TestSetFromCreationToDeletion",
			"TestFiftyOrphansAreAdopted",
			"TestASetIsFrozenAndUnfrozen",
			"TestSweepDeletesOnlyTheInstanceWithoutAMachine",
			"TestScaleDownDeletesExactlyTheMarkedMachines",
		},
		"rollouts": {
			"TestAllMachinesAreReplacedWithinTheBounds",
			"TestSizeAndTemplateChangeDuringARollout",
			"TestRolloutIsPausedAndResumed",
			"TestRolloutIsCancelledRolledBackAndUndone",
			"TestInPlaceUpdateAndBack",
			"TestRecreateMakesNoNewMachineBeforeTheLastOldOneIsGone",
			"TestOnDeleteReplacesOnlyDeletedMachines",
			"TestStagesAndAutomaticRollback",
		},
		"explain": {"TestWhatIsBlockedIsExplainedAsFields", "TestKubectlRunsThePlugin"},
		"capi": {
			"TestSetIsScaledFromZeroToThreeToOneAndDeleted",
			"TestDeploymentIsCreatedRolledOutAndDeleted",
			"TestASetIsHandedOverAndBackWithoutReplacingAMachine",
			"TestBudgetBlocksADrainUntilItAllowsTheEviction",
			"TestAnUnhealthyMachineIsReplaced",
		},
	}
}
