// SPDX-License-Identifier: Apache-2.0
/// The version of the command-line tool.
enum Version {
    /// The output of `hhsocket --version`. A release sets it to the newest heading of CHANGELOG.md; until then it is
    /// the version of the next release, with `-dev`.
    static let current = "0.1.0"
}
