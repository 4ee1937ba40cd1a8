/// The version of the command-line tool.
enum Version {
    /// What `hhsocket --version` prints. A release sets it to the newest heading of CHANGELOG.md; until then it is that
    /// of the release to come, and ends in `-dev`.
    static let current = "0.1.0-dev"
}
