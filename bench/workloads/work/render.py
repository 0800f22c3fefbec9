import bpy

bpy.ops.mesh.primitive_monkey_add(location=(1.5, 0, 0))
bpy.ops.object.modifier_add(type="SUBSURF")
bpy.context.object.modifiers[0].levels = 3
bpy.context.object.modifiers[0].render_levels = 3
bpy.ops.mesh.primitive_torus_add(location=(-1.5, 0, 0))
scene = bpy.context.scene
scene.render.engine = "CYCLES"
scene.cycles.device = "CPU"
scene.cycles.samples = 12
scene.cycles.use_denoising = False
scene.render.resolution_x, scene.render.resolution_y = 480, 270
scene.render.filepath = "//work.png"
bpy.ops.render.render(write_still=False)
