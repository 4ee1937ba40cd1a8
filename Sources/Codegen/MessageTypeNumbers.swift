// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// Checks the numbers of methods and pushes on the wire, in all files that are generated together and in those that
/// they import.
struct MessageTypeNumbers {
    /// The numbers that an application may use. Lower ones are the protocol's own types; higher ones are not valid
    /// types, so that a reader that has lost synchronisation notices it.
    static let allowed: ClosedRange<UInt32> = 16...0x1FFF_FFFF

    private struct User {
        var name: String
        /// The option's name, `message_type` or `push_type`.
        var option: String
        var position: SourcePosition
    }

    private(set) var diagnostics: [Diagnostic] = []
    private var users: [UInt32: User] = [:]

    /// - Parameters:
    ///   - files: The files that are generated.
    ///   - required: Whether every method in them requires a number.
    init(_ files: [FileDescriptor], required: Bool) {
        let generated = Set(files.map(\.name))
        for file in files.withImports {
            for service in file.services {
                for method in service.methods {
                    self.add(method, required: required && generated.contains(file.name))
                }
            }
            for message in file.allMessages { self.add(message) }
        }
    }

    private mutating func add(_ method: MethodDescriptor, required: Bool) {
        guard let number = method.messageType else {
            guard required else { return }
            self.diagnostics.append(
                Diagnostic(
                    method,
                    "the method \(method.fullName) has no number; give it one of its own, such as "
                        + "option (hhsocket.message_type) = 101;"
                )
            )
            return
        }
        let path = [DescriptorPaths.methodOptions, CustomOptions.number]
        self.add(number, option: "message_type", of: method.fullName, at: method, within: path)
    }

    private mutating func add(_ message: Descriptor) {
        guard let number = message.pushType else { return }
        let path = [DescriptorPaths.messageOptions, CustomOptions.number]
        self.add(number, option: "push_type", of: message.fullName, at: message, within: path)
    }

    private mutating func add(
        _ number: UInt32,
        option: String,
        of name: String,
        at element: some ProvidesLocationPath,
        within path: [Int]
    ) {
        guard Self.allowed.contains(number) else {
            let reason = number < Self.allowed.lowerBound ? "is reserved for the protocol itself" : "is too large"
            return self.diagnostics.append(
                Diagnostic(
                    element,
                    within: path,
                    "the \(option) \(number) of \(name) \(reason); valid numbers are "
                        + "\(Self.allowed.lowerBound) to \(Self.allowed.upperBound)"
                )
            )
        }
        guard let user = self.users[number] else {
            self.users[number] = User(
                name: name,
                option: option,
                position: SourcePosition(element, within: path)
            )
            return
        }
        // On the wire, a push is distinguished from an answer by its serial. In logs, metrics and captures, only the
        // number distinguishes them.
        let reason = user.option == option ? "" : ": calls and pushes share their numbers"
        self.diagnostics.append(
            Diagnostic(
                element,
                within: path,
                "the \(option) \(number) of \(name) is the \(user.option) of \(user.name) already "
                    + "(\(user.position))\(reason)"
            )
        )
    }
}
