// Package capture is for programs that want the samples of a recording, with their stacks, and nothing else of unspool:
// [Open], and range over [Recording.Samples]. Package live makes recordings.
//
// Below it are the rooms of a recording:
//
//	live, recorded ─▶ session ─▶ counts
//
// Package session turns records with raw stacks into records with callchains. Package live gives it records as they are
// made, and package recorded those of recordings that exist; package counts says what came of it. What reads recordings
// stands beside them: view and format on profile on symbols, and verdict, which also records. All of them read and
// write by perfdata and output, and leave what takes rights to rights.
package capture
