// OpenFeature's hook without OpenTelemetry: events for POST /v1/events.
export const exposures = (track, commit) => ({
  after({ context }, { flagKey, value, flagMetadata: drawn }) {
    const members = { commit: drawn.commit ?? commit, flags: { [flagKey]: value } };
    if (drawn.assignment) members.assignment = drawn.assignment;
    track("feature_flag.evaluation", context.targetingKey, members);
  },
});
