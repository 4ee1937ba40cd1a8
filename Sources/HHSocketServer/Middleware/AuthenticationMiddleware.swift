// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// Admits the requests of clients whose identity is known (``ServerSession/authenticate(as:)``), and those by which it
/// becomes known. Others are answered ``/HHSocket/Status/noPermission`` (405), whether or not their type has a handler,
/// and before their bodies are decompressed.
///
/// It is an admission and not a middleware: with it alone, the handlers of
/// ``Router/handleSynchronously(_:limits:_:)-(UInt32,_,_)`` stay on the event loop.
public struct AuthenticationMiddleware: ServerAdmission {
    private let openTypes: Set<UInt32>

    /// - Parameter openTypes: Requests that any client may make, such as the one for signing in.
    public init(except openTypes: Set<UInt32> = []) {
        self.openTypes = openTypes
    }

    /// True.
    public var requiresIdentity: Bool { true }

    public func admit(_ header: RequestHeader, _ session: ServerSession) -> Admission {
        self.openTypes.contains(header.type) || session.identity != nil ? .admit : .refuse(.noPermission)
    }
}
