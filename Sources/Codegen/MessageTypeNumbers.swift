import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// The numbers that stand for methods and pushes on the wire: of all files that are generated at once, and of those
/// that they import.
struct MessageTypeNumbers {
    /// Those that an application may use. Below are the protocol's own types; above is what cannot be a type, by which
    /// a reader that has lost its place notices it.
    static let allowed: ClosedRange<UInt32> = 16...0x1FFF_FFFF

    private struct User {
        var name: String
        /// `message_type` or `push_type`.
        var option: String
        var place: SourcePlace
    }

    private(set) var complaints: [Complaint] = []
    private var users: [UInt32: User] = [:]

    /// - Parameters:
    ///   - files: Those that are generated.
    ///   - required: Whether every method of those needs a number.
    init(_ files: [FileDescriptor], required: Bool) {
        let generated = Set(files.map(\.name))
        for file in Self.withImports(files) {
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
            self.complaints.append(
                Complaint(
                    method,
                    "the method \(method.fullName) has no number; give it one of its own, such as "
                        + "option (hhsocket.message_type) = 101;"
                )
            )
            return
        }
        let path = [DescriptorPaths.methodOptions, CustomOptions.number]
        self.add(number, "message_type", method.fullName, method, within: path)
    }

    private mutating func add(_ message: Descriptor) {
        guard let number = message.pushType else { return }
        let path = [DescriptorPaths.messageOptions, CustomOptions.number]
        self.add(number, "push_type", message.fullName, message, within: path)
    }

    private mutating func add(
        _ number: UInt32,
        _ option: String,
        _ name: String,
        _ element: some ProvidesLocationPath,
        within path: [Int]
    ) {
        guard Self.allowed.contains(number) else {
            let reason = number < Self.allowed.lowerBound ? "is reserved for the protocol itself" : "is too large"
            return self.complaints.append(
                Complaint(
                    element,
                    within: path,
                    "the \(option) \(number) of \(name) \(reason); there are "
                        + "\(Self.allowed.lowerBound) to \(Self.allowed.upperBound)"
                )
            )
        }
        guard let user = self.users[number] else {
            self.users[number] = User(
                name: name,
                option: option,
                place: SourcePlace(element, within: path)
            )
            return
        }
        // A push is told from an answer by its serial, so the wire would bear it. But a number is a name, in logs,
        // metrics and captures too, and there nothing tells the two apart.
        let reason = user.option == option ? "" : ": calls and pushes share their numbers"
        self.complaints.append(
            Complaint(
                element,
                within: path,
                "the \(option) \(number) of \(name) is the \(user.option) of \(user.name) already (\(user.place))\(reason)"
            )
        )
    }

    /// The files and all that they import, what is imported first.
    private static func withImports(_ files: [FileDescriptor]) -> [FileDescriptor] {
        var seen: Set<String> = []
        var ordered: [FileDescriptor] = []
        func add(_ file: FileDescriptor) {
            guard seen.insert(file.name).inserted else { return }
            for dependency in file.dependencies { add(dependency) }
            ordered.append(file)
        }
        for file in files { add(file) }
        return ordered
    }
}
