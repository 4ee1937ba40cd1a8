// SPDX-License-Identifier: Apache-2.0
/// The user of a broker.
public struct STOMPCredentials: Sendable, CustomStringConvertible, CustomReflectable {
    public let login: String
    public let passcode: String

    public init(login: String, passcode: String) {
        self.login = login
        self.passcode = passcode
    }

    /// The login; never the passcode.
    public var description: String { "STOMPCredentials(login: \(self.login))" }
    public var customMirror: Mirror { Mirror(self, children: ["login": self.login]) }
}
