// SPDX-License-Identifier: Apache-2.0
import Foundation
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// The modules to which the options assign `.proto` files. Files without one are in the module of the generated code.
struct ModuleMappings {
    private var byFile: [String: String] = [:]

    /// Adds the assignments of a file in swift-protobuf's text format:
    /// `mapping { module_name: "Common" proto_file_path: "common.proto" }`.
    mutating func add(contentsOf path: String) throws(OptionError) {
        let list: SwiftProtobuf_GenSwift_ModuleMappings
        do {
            let text = try String(contentsOf: URL(fileURLWithPath: path), encoding: .utf8)
            list = try SwiftProtobuf_GenSwift_ModuleMappings(textFormatString: text)
        } catch let error as TextFormatDecodingError {
            throw OptionError(text: "ProtoPathModuleMappings=\(path): not a list of mappings: \(error)")
        } catch {
            throw OptionError(text: "ProtoPathModuleMappings=\(path): \(error.localizedDescription)")
        }
        for mapping in list.mapping {
            let option = "ProtoPathModuleMappings=\(path)"
            guard !mapping.protoFilePath.isEmpty else {
                throw OptionError(text: "\(option): the mapping of \"\(mapping.moduleName)\" has no proto_file_path")
            }
            for file in mapping.protoFilePath { try self.add(file, to: mapping.moduleName, option) }
        }
    }

    /// Adds an assignment such as `Common:common.proto`.
    mutating func add(assignment: String) throws(OptionError) {
        let parts = assignment.split(separator: ":", maxSplits: 1).map(String.init)
        guard parts.count == 2 else {
            throw OptionError(text: "Module=\(assignment): expected a module and a file, such as Common:common.proto")
        }
        try self.add(parts[1], to: parts[0], "Module=\(assignment)")
    }

    private mutating func add(_ file: String, to module: String, _ option: String) throws(OptionError) {
        guard isValidSwiftIdentifier(module) else {
            throw OptionError(text: "\(option): \"\(module)\" is not the name of a module")
        }
        if let other = self.byFile.updateValue(module, forKey: file), other != module {
            throw OptionError(text: "\(option): \(file) is in the module \(other) already")
        }
    }

    /// The mappings in the form that the namer of swift-protobuf accepts.
    ///
    /// - Parameter runtime: The module of the well-known types.
    func mappings(runtime: String) -> ProtoFileToModuleMappings {
        let list = SwiftProtobuf_GenSwift_ModuleMappings.with { list in
            list.mapping = self.byFile.filter { !SwiftProtobufInfo.bundledProtoFiles.contains($0.key) }.map { entry in
                .with { mapping in
                    mapping.moduleName = entry.value
                    mapping.protoFilePath = [entry.key]
                }
            }
        }
        let mappings = try? ProtoFileToModuleMappings(moduleMappingsProto: list, swiftProtobufModuleName: runtime)
        // No error is possible: each file has one module, which has a name.
        return mappings ?? ProtoFileToModuleMappings(swiftProtobufModuleName: runtime)
    }
}
